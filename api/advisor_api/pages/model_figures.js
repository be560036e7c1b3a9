// The figures of a model's evaluation, in words. All are of jobs that it had not seen.

export const FIGURES = [
  ["oracle_throughput_per_watt_percent", "Fraction of oracle, %", "work per joule at the chosen split, of the best measured one; mean"],
  ["rate_mean_error_percent", "Error of rates, %", "mean"],
  ["power_mean_error_percent", "Error of power, %", "mean"],
  ["rate_coverage_percent", "Rates within the range, %", "of what was measured"],
];

const MORE = {
  oracle_energy_efficiency_percent: "Work per joule at the chosen split, of the best measured one, % (mean)",
  oracle_energy_efficiency_p10_percent: "Work per joule at the chosen split, % (a tenth of the choices does less)",
  oracle_energy_efficiency_worst_percent: "Work per joule at the chosen split, % (worst choice)",
  efficiency_coverage_percent: "Energy within the range, %",
  oracle_throughput_per_watt_p10_percent: "Fraction of oracle, % (a tenth of the choices does less)",
  oracle_throughput_per_watt_worst_percent: "Fraction of oracle, % (worst choice)",
  oracle_raw_throughput_per_watt_percent: "Fraction of oracle by the sum of rates per watt, % (mean)",
  oracle_raw_throughput_per_watt_p10_percent: "Fraction of oracle by the sum of rates per watt, % (a tenth does less)",
  oracle_raw_throughput_per_watt_worst_percent: "Fraction of oracle by the sum of rates per watt, % (worst)",
  rate_median_error_percent: "Error of rates, % (median)",
  uncapped_rate_mean_error_percent: "Error of rates without limits, % (mean)",
  uncapped_power_mean_error_percent: "Error of power without limits, % (mean)",
  power_coverage_percent: "Powers within the range, %",
};

// A figure in words; one that is not known here keeps its name.
export function words(key) {
  const known = FIGURES.find(([name]) => name === key);
  return known ? known[1] : (MORE[key] ?? key.replaceAll("_", " "));
}
