"""Forecasts of disk arrays: layouts and loads from files, simulated (crates/storage), sealed before a measurement, scored after it."""
