"""Numbers that a file implies without stating them, one formula each.

C requests in flight, each with a reply of O tokens: F seconds to the first one, T seconds for each
further one, L = F + (O - 1) T for the whole request.
"""

from __future__ import annotations

from roofcast.calibrate.benchmark_files.record import Quantity, Record


def mean(total: Quantity | None, count: Quantity | None) -> Quantity | None:
    """Total over count: the mean length that ran, whatever was asked for."""
    if total is None or count is None:
        return None
    return Quantity(total.value / count.value, f"{total.source} / {count.source}")


def latency(
    ttft: Quantity | None, tpot: Quantity | None, output: Quantity | None
) -> Quantity | None:
    """L = F + (O - 1) T: the mean latency of requests whose file leaves it out.

    >>> latency(Quantity(0.1, "ttft"), Quantity(0.01, "tpot"), Quantity(200, "osl"))
    Quantity(value=2.09, source='ttft + (osl - 1) x tpot')
    """
    if ttft is None or tpot is None or output is None:
        return None
    value = ttft.value + max(output.value - 1.0, 0.0) * tpot.value
    return Quantity(value, f"{ttft.source} + ({output.source} - 1) x {tpot.source}")


def in_flight(rate: Quantity | None, request_s: Quantity | None) -> Quantity | None:
    """Little's law, C = rate x L: the mean number of requests in the system.

    J. D. C. Little, "A proof for the queuing formula L = lambda W", Operations Research 9(3), 1961.

    >>> round(in_flight(Quantity(3.8278, "rate"), Quantity(2.09, "latency")).value, 2)
    8.0
    """
    if rate is None or request_s is None:
        return None
    return Quantity(rate.value * request_s.value, f"{rate.source} x ({request_s.source})")


def step(tpot: Quantity | None, per_step: Quantity | None) -> Quantity | None:
    """Seconds of a step that yields several tokens: TPOT x tokens a step."""
    if tpot is None or per_step is None:
        return None
    return Quantity(tpot.value * per_step.value, f"{tpot.source} x {per_step.source}")


def reply_length(
    request_s: Quantity | None, ttft: Quantity | None, tpot: Quantity | None
) -> Quantity | None:
    """O = 1 + (L - F) / T: the mean reply, where a file has only the length asked for.

    >>> reply_length(Quantity(2.09, "e2el"), Quantity(0.1, "ttft"), Quantity(0.01, "tpot")).value
    200.0
    """
    if request_s is None or ttft is None or tpot is None or request_s.value <= ttft.value:
        return None
    value = 1.0 + (request_s.value - ttft.value) / tpot.value
    return Quantity(round(value, 6), f"1 + ({request_s.source} - {ttft.source}) / {tpot.source}")


def without_first(
    per_token: Quantity, ttft: Quantity | None, output: Quantity | None
) -> Quantity | None:
    """T = (O t - F) / (O - 1) from a time per token t = L / O that includes the first one.

    >>> t = Quantity(0.01045, "tpot")  # GuideLLM's example: 2.09 s over 200 tokens
    >>> round(without_first(t, Quantity(0.1, "ttft"), Quantity(200, "osl")).value, 6)
    0.01
    """
    if ttft is None or output is None or output.value < 2:
        return None
    rest = per_token.value * output.value - ttft.value
    words = f"({per_token.source} x {output.source} - {ttft.source}) / ({output.source} - 1)"
    return Quantity(rest / (output.value - 1.0), words) if rest > 0 else None


def decoding(record: Record) -> float | None:
    """Sequences that decode at a time: C (O - 1) T / (F + (O - 1) T), the others wait or prefill.

    In a static run all of them do. Where TTFT isn't known, all are taken to.

    >>> record = Record("f", "", "x", batch=Quantity(8, "c"), batch_kind="achieved",
    ...     output_tokens=Quantity(200, "o"), tpot_s=Quantity(0.01, "t"), ttft_s=Quantity(0.1, "f"))
    >>> round(decoding(record), 3)
    7.617
    """
    batch = record.value("batch")
    ttft, tpot, output = (record.value(name) for name in ("ttft_s", "tpot_s", "output_tokens"))
    if batch is None or record.static or ttft is None or tpot is None or output is None:
        return batch
    reply = max(output - 1.0, 1.0) * tpot
    return batch * reply / (reply + ttft)
