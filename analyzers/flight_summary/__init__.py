"""What a flight record comes to: pure functions from the record to figures, sentences and advice."""

from .model import DeviceShares, FlightSummary, FloorTrend, KeptMemory
from .summary import summarize_flight_record

__all__ = ["DeviceShares", "FlightSummary", "FloorTrend", "KeptMemory", "summarize_flight_record"]
