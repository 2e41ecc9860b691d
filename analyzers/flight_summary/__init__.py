"""What a flight record comes to: pure functions from the record to figures, sentences and advice."""

from .model import DeviceShares, FlightSummary, FloorTrend
from .summary import summarize_flight_record

__all__ = ["DeviceShares", "FlightSummary", "FloorTrend", "summarize_flight_record"]
