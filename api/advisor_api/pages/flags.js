// What was wrong with a measured window, in the words of docs/flags.md.

export const FLAGS = {
  "noisy-rate": "standard error of a rate above the target when the window's time was up; of a job with a demand, above what chance makes of its requests",
  "noisy-power": "standard error of the power above the target when the window's time was up",
  "not-settled": "power or rate still moved when the window began",
  "throttled": "the clock was lowered: power cap, heat or a hardware slowdown",
  "heat": "not the power limit, or not alone, lowered the clock: heat, or a brake of the hardware",
  "counter-mismatch": "energy counter and instant power differ by more than 3% and more than three standard errors of the power",
  "counters-missing": "a counter that the models use could not be read",
  "cpu-bound": "a job used a whole core or more while its SMs were idle over 30 % of the time",
  "cpu-steal": "other guests of the host took over 1 % of the CPU time",
  "shared-core": "time-sliced jobs that want more than a CPU core were all kept on one",
  "wrong-results": "a job reported a result that is not finite",
  "results-differ": "a job's results are further from those at the full GPU than it tolerates",
  "results-only": "too short for rates: measured to read the job's results",
  "limit-broken": "a process computed on the GPU that was not under its limit, or of no job",
  "too-fast": "a job of a launch made far more progress than its profile says of its share alone",
  "too-slow": "a job made under a twentieth of the progress that its profile says of its share",
  "p99-broken": "a server of a launch was above its promised p99 for several windows in a row",
  "stranger": "a process of no job computed on the GPU beside those of a launch",
  "unwatched": "nobody looked at the jobs of a launch for 10 s or more: its supervisor was stopped",
  "uncounted": "the progress or the results of a job of a launch could not be read for a time",
  "foreign-host": "a job of a launch was over 14 % faster than alone by its profile, which is of another host",
  "failed": "a job of the pair failed: there are no rates",
  "degenerate-data": "too little energy for the work: results are likely wrong, such as NaN",
  "slow-alone": "over 12 % slower on the whole GPU than at a smaller share: its host held it up",
  "backlog": "a server answered more than arrives, or far later than at half the GPU: it emptied a queue from its start or a burst",
  "other-demand": "for minutes more or less arrived at a server of a launch than was expected",
  "seen": "watched at its work alone on the whole GPU, not profiled",
  "one-window": "the job was seen on the whole GPU alone: its other shares are estimated from that",
  prior: "nothing was learned from its GPU model: its other shares are a guess from how busy the GPU was, with wide ranges",
  "gpus-differ": "the GPUs of a job of several drew more than a tenth of their mean power more or less than each other",
  "several-gpus": "a job of a launch held several GPUs: such a launch teaches nothing yet",
  "results-unread": "a half-precision job at a count of SMs where the check of this GPU model found wrong results, and its own results were not read",
};

// Flags of points at which a job did not do its work: what was measured there is no result.
export const WRONG = ["degenerate-data", "results-differ", "wrong-results"];
