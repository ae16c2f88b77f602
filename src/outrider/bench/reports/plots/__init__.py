"""The plots of a report; they need plotly (extra `bench`)."""

from outrider.bench.reports.plots.base import Looks, Plot
from outrider.bench.reports.plots.cases import setting_plots
from outrider.bench.reports.plots.overall import report_plots

__all__ = ["Looks", "Plot", "report_plots", "setting_plots"]
