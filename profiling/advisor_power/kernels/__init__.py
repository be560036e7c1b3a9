"""Power of one operation over time, from many short runs and a slow sensor (docs/kernel-power.md).

The method is FinGraV (Singhania, Aga, Ibrahim, "Methodology for Fine-Grain GPU Power Visibility
and Insights", ISPASS 2025, arXiv 2412.12426), adapted to NVML, whose readings are means over a
window that is longer than most executions.
"""
