// The interactive view: sliders and toggles over precomputed grids. Reads #explorer-data, writes text
// only through textContent, and asks the network for nothing.
(function () {
  "use strict";
  const source = document.getElementById("explorer-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const controls = document.getElementById("explorer-controls");
  const sliders = { batch: data.batches, context: data.contexts };
  const SERIES = ["blue", "orange", "green", "purple", "amber", "sky"];
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross"];
  const CAUSES = [
    ["weights", "weights", "blue", ""], ["kv_cache", "KV cache", "orange", "/"],
    ["activations", "activations", "amber", "."], ["compute", "compute", "green", "x"],
    ["interconnect", "interconnect", "sky", "\\"], ["overhead", "launch and host", "faint", ""],
  ];
  const chosen = (name) => Number(document.getElementById(name).value);
  const shown = () =>
    [...controls.querySelectorAll("[name=device]:checked")].map((box) => Number(box.value));

  // Plotly reads a little markup in its texts; names must show as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

  function significant(value) {
    if (value === null || !Number.isFinite(value)) return "–";
    const rounded = Number(value.toPrecision(3));
    return rounded >= 1000 ? Math.round(value).toLocaleString("en") : rounded.toPrecision(3);
  }

  function seconds(value) {
    if (value === null) return "–";
    const [factor, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    return significant(value * factor) + " " + unit;
  }

  const bytes = (value) => significant(value / 1e9) + " GB";
  const integer = (value) => value.toLocaleString("en");

  function colours() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue("--" + name).trim();
  }

  function rate(device, batch, step, counted) {
    if (step === null) return null;
    if (counted === "user") return 1 / step;
    return batch / step / (counted === "device" ? device.devices : 1);
  }

  // 1, 2 and 5 of every decade, written in full: Plotly's own log ticks say "2" for 20 and for 200.
  const STEPS = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6].flatMap((power) =>
    [1, 2, 5].map((digit) => Number(digit + "e" + power)));
  const short = (value) => (value >= 1e6 ? value / 1e6 + "M" : value >= 1e3 ? value / 1e3 + "k" : String(value));

  const RATES = { replica: "output tokens/s", device: "output tokens/s per device", user: "output tokens/s per user" };

  function layout(ink, xTitle, yTitle, more) {
    const axis = {
      type: "log", tickvals: STEPS, ticktext: STEPS.map(short), gridcolor: ink("grid"), linecolor: ink("axis"), zeroline: false,
      automargin: true, fixedrange: true,
    };
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      margin: { l: 62, r: 18, t: 30, b: 48 }, hovermode: "closest",
      font: { color: ink("ink"), family: "system-ui, 'DejaVu Sans', sans-serif", size: 12 },
      hoverlabel: { bgcolor: ink("panel"), bordercolor: ink("axis"), font: { color: ink("ink") } },
      xaxis: Object.assign({ title: { text: xTitle } }, axis),
      yaxis: Object.assign({}, axis),
      annotations: [{
        text: yTitle, xref: "paper", yref: "paper", x: 0, y: 1.02, xanchor: "left",
        yanchor: "bottom", showarrow: false, font: { color: ink("quiet") },
      }],
    }, more);
  }

  function ticks(values, spell) {
    const step = Math.ceil(values.length / 8);
    const kept = values.filter((value) => Number.isInteger(Math.log2(value)))
      .filter((_, index, all) => index % Math.ceil(all.length / 8) === 0);
    const used = kept.length > 2 ? kept : values.filter((_, index) => index % step === 0);
    return { tickvals: used, ticktext: used.map(spell) };
  }

  const tokens = (value) => (value >= 1024 && value % 1024 === 0 ? value / 1024 + "k" : String(value));

  // One curve: band, the part that fits, the part that does not (dotted), the chosen point.
  function curve(index, ink, x, y, low, high, fits, texts, at) {
    const device = data.devices[index], colour = ink(SERIES[index % 6]), name = plain(device.label);
    const traces = [];
    if (low.every((value) => value !== null)) {
      traces.push({
        x: x.concat([...x].reverse()), y: high.concat([...low].reverse()), type: "scatter",
        mode: "none", fill: "toself", fillcolor: colour, opacity: 0.14, hoverinfo: "skip",
      });
    }
    const beyond = y.map((value, i) => (fits[i] && fits[Math.min(i + 1, y.length - 1)] ? null : value));
    const within = y.map((value, i) => (fits[i] ? value : null));
    const line = { type: "scatter", x: x, name: name, hoverinfo: "skip", mode: "lines" };
    traces.push({ ...line, y: beyond, line: { color: colour, width: 1.4, dash: "dot" } });
    traces.push({
      ...line, y: within, mode: "lines+markers", line: { color: colour, width: 2.2 },
      marker: { color: colour, size: 6, symbol: SYMBOLS[index % 6] },
      hoverinfo: "text", hovertext: texts,
    });
    traces.push({
      ...line, x: [x[at]], y: [y[at]], mode: "markers",
      marker: { size: 14, color: "rgba(0,0,0,0)", line: { color: ink("ink"), width: 2 } },
    });
    return traces;
  }

  function hover(device, b, c) {
    return plain(device.label) + "<br>batch " + integer(data.batches[b]) + ", context " +
      integer(data.contexts[c]) + "<br>" + seconds(device.step_s[b][c]) + " a token" +
      "<br>" + significant(data.batches[b] / device.step_s[b][c]) + " tok/s, " +
      significant(1 / device.step_s[b][c]) + " per user<br>" + device.bound[b][c] +
      (device.fits[b][c] ? "" : "<br>does not fit in memory");
  }

  function draw(id, traces, shape) {
    Plotly.react("plot-" + id, traces, shape, { displayModeBar: false, responsive: true });
  }

  function overBatch(index, ink, b, c, counted) {
    const device = data.devices[index];
    const of = (grid) => data.batches.map((batch, i) => rate(device, batch, grid[i][c], counted));
    return curve(index, ink, data.batches, of(device.step_s), of(device.high_s), of(device.low_s),
      data.batches.map((_, i) => device.fits[i][c]), data.batches.map((_, i) => hover(device, i, c)), b);
  }

  function overContext(index, ink, b, c) {
    const device = data.devices[index];
    const of = (grid) => grid[b].map((value) => (value === null ? null : value * 1e3));
    return curve(index, ink, data.contexts, of(device.step_s), of(device.low_s), of(device.high_s),
      device.fits[b], data.contexts.map((_, i) => hover(device, b, i)), c);
  }

  function tradeOff(index, ink, b, c) {
    const device = data.devices[index], unknown = data.batches.map(() => null);
    const of = (counted) => data.batches.map((batch, i) => rate(device, batch, device.step_s[i][c], counted));
    return curve(index, ink, of("user"), of("device"), unknown, unknown,
      data.batches.map((_, i) => device.fits[i][c]), data.batches.map((_, i) => hover(device, i, c)), b);
  }

  function parts(ink, devices, b, c) {
    const names = devices.map((index) => plain(data.devices[index].label));
    return CAUSES.map(([key, word, colour, pattern]) => ({
      type: "bar", orientation: "h", name: word, y: names,
      x: devices.map((index) => data.devices[index].causes_s[key][b][c] * 1e3),
      marker: { color: ink(colour), pattern: { fillmode: "overlay", shape: pattern, fgcolor: ink("paper"), size: 6, solidity: 0.2 } },
      hoverinfo: "text",
      hovertext: devices.map((index) => {
        const device = data.devices[index], part = device.causes_s[key][b][c];
        return word + " on " + plain(device.label) + ": " + seconds(part) + ", " +
          Math.round((100 * part) / device.step_s[b][c]) + " %";
      }),
      textposition: "none",
    }));
  }

  function cells(device, b, c) {
    const step = device.step_s[b][c], batch = data.batches[b], low = device.low_s[b][c];
    return [
      seconds(step), low === null ? "–" : seconds(low) + " – " + seconds(device.high_s[b][c]),
      significant(batch / step), significant(1 / step), significant(batch / step / device.devices),
      device.bound[b][c], bytes(device.memory_bytes[b][c]), device.fits[b][c] ? "yes" : "NO",
    ];
  }

  function tabulate(devices, b, c) {
    const body = document.querySelector("#chosen tbody");
    const heads = [...document.querySelectorAll("#chosen thead th")];
    body.replaceChildren(...devices.map((index) => {
      const device = data.devices[index], row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = device.label;
      row.append(head, ...cells(device, b, c).map((text, column) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        cell.className = heads[column + 1].className;
        return cell;
      }));
      return row;
    }));
    document.getElementById("chosen-caption").textContent =
      "At batch " + integer(data.batches[b]) + ", context " + integer(data.contexts[c]);
  }

  function speak(devices, b, c) {
    const said = devices.map((index) => {
      const device = data.devices[index];
      return device.label + " " + seconds(device.step_s[b][c]) + " a token" +
        (device.fits[b][c] ? "" : ", does not fit");
    });
    document.getElementById("explorer-status").textContent =
      "Batch " + integer(data.batches[b]) + ", context " + integer(data.contexts[c]) + ": " +
      (said.join("; ") || "no device chosen") + ".";
  }

  function update() {
    const ink = colours(), devices = shown(), b = chosen("batch"), c = chosen("context");
    const counted = document.getElementById("counted").value;
    const each = (traces) => devices.flatMap((index) => traces(index, ink, b, c, counted));
    for (const [name, unit] of [["batch", "sequences"], ["context", "tokens"]]) {
      const text = integer(sliders[name][chosen(name)]) + " " + unit;
      document.getElementById(name + "-value").textContent = text;
      document.getElementById(name).setAttribute("aria-valuetext", text);
    }
    const throughput = layout(ink, "batch (sequences at once)", RATES[counted]);
    Object.assign(throughput.xaxis, ticks(data.batches, String));
    draw("throughput", each(overBatch), throughput);
    const latency = layout(ink, "context (tokens cached per sequence)", "ms per token");
    Object.assign(latency.xaxis, ticks(data.contexts, tokens));
    draw("latency", each(overContext), latency);
    draw("pareto", each(tradeOff), layout(ink, "tokens/s per user", "tokens/s per device"));
    const bars = layout(ink, "step time (ms)", "", {
      barmode: "stack", showlegend: true, annotations: [],
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" },
    });
    Object.assign(bars.xaxis, { type: "linear", tickvals: undefined, ticktext: undefined });
    Object.assign(bars.yaxis, {
      type: "category", autorange: "reversed", showgrid: false, tickvals: undefined, ticktext: undefined,
    });
    draw("breakdown", parts(ink, devices, b, c), bars);
    tabulate(devices, b, c);
    speak(devices, b, c);
  }

  controls.addEventListener("input", update);
  controls.addEventListener("submit", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  update();
})();
