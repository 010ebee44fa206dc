"""Audits: how far a measured point is from what its hardware allows, where its time went, and why.

from roofcast.calibrate.audit.audit import audit
audit(read("vllm.json"), Conditions(model="llama-3.1-8b", device="h100-sxm"))
"""
