"""`inlay bench`: start at measure.py. subjects.py has what is run, peers.py who runs it, processes.py and peer_process.py the
two ends of a peer's pipe, report.py the tables."""

from inlay.bench.subjects import find_model, load_model, make_inputs

__all__ = ["find_model", "load_model", "make_inputs"]
