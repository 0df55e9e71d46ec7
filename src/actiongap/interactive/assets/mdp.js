// Small finite MDPs: iterate an operator, compute action gaps, add noise to Q-values. `backup` and the operators are translated from Python.

const MOST_SWEEPS = 20000;
const LARGEST = 1e9; // larger values mean that the iteration has diverged

// One sweep: Q after applying the operator to every pair.
function sweep(mdp, rewards, gamma, operator, numbers, q) {
  const v = q.map((row) => Math.max(...row));
  const after = [];
  for (let x = 0; x < q.length; x++) {
    const row = [];
    for (let a = 0; a < q[x].length; a++) {
      const places = mdp.successors[x][a], chances = mdp.probabilities[x][a];
      let nextV = 0, nextQ = 0, stay = 0;
      for (let k = 0; k < places.length; k++) {
        nextV += chances[k] * v[places[k]];
        nextQ += chances[k] * q[places[k]][a];
        if (places[k] === x) stay += chances[k];
      }
      row.push(operator.apply(backup(gamma, rewards[x][a], q[x][a], v[x], nextV, nextQ, stay), numbers));
    }
    after.push(row);
  }
  return after;
}

// Sweeps from Q = 0 until Q has converged to float64 precision; `settled` is false if it does not converge.
function solve(mdp, operator, { gamma, epsilon, ...numbers }) {
  const rewards = mdp.rewards(gamma, epsilon);
  let q = rewards.map((row) => row.map(() => 0));
  for (let sweeps = 1; sweeps <= MOST_SWEEPS; sweeps++) {
    const after = sweep(mdp, rewards, gamma, operator, numbers, q);
    let change = 0, size = 1;
    for (let x = 0; x < q.length; x++) for (let a = 0; a < q[x].length; a++) {
      change = Math.max(change, Math.abs(after[x][a] - q[x][a]));
      size = Math.max(size, Math.abs(after[x][a]));
    }
    q = after;
    if (!(size < LARGEST)) return { q, sweeps, settled: false };
    if (change <= 1e-14 * size) return { q, sweeps, settled: true };
  }
  return { q, sweeps: MOST_SWEEPS, settled: false };
}

const greedy = (row) => row.indexOf(Math.max(...row));
// The difference between the best and the second-best value.
const actionGap = (row) => { const [first, second] = [...row].sort((a, b) => b - a); return first - second; };
// Whether an action is worse than the best by the true values, beyond rounding.
const isWrong = (truth, a) => truth[a] < Math.max(...truth) - 1e-9;
const shaken = (row, noise, sigma) => row.map((value, a) => value + sigma * noise[a]);

// Seeded normal numbers: the same noise for every operator, and for every visit.
function normals(seed, count) {
  let state = seed >>> 0;
  const uniform = () => { // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return Array.from({ length: count }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}
