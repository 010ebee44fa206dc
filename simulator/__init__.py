"""What a decode step costs: architectures, operators, roofline, forecasts."""
