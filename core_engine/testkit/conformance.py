"""The conformance kit: what every policy must stand, whatever it decides, and the proof where one doesn't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from core_engine.testkit.cost import MOST_TIMES, SIZES, Cost, measure
from core_engine.testkit.memory import num_remembered
from core_engine.testkit.processes import digest, digests_elsewhere
from core_engine.testkit.report import Check, CounterExample, Report, Wait
from core_engine.testkit.shrinking import shrink
from core_engine.testkit.subject import Subject, subject
from core_engine.testkit.trial import Finding, Trial, run_trial
from core_engine.testkit.workloads import Flood, Machine, Wish, Workload, floods, random_workload

_NUM_WORKLOADS = 200
_REPEATED = 4  # one in so many is run twice
_NUM_ELSEWHERE = 10  # of them, run in another process too
_MAX_WAIT_ITERATIONS = 512  # in a flood: ten times what the requests ahead take, first come first served
_REPLAYS = 24  # runs in which what goes by chance should show: of two requests each order is as likely
_FEWEST_BOARDINGS = 3  # below it nothing is said of how they came about
_PHASES = (100, 500)  # iterations after which memory must not grow; the second is for bounded caches
_REMEMBERED_EACH = 0.5  # items for each request ever seen: too many
_OTHERS_ELSEWHERE = (
    "another process gives other records for the same seed: does it go by the order of a set of strings?"
)

Probe = Callable[[Subject, Workload, int], Finding | None]


def check_policy(
    policy: str | type, *, num_workloads: int = _NUM_WORKLOADS, seed: int = 0, cost: bool = True, processes: bool = True
) -> Report:
    """Run the whole kit over a policy: a specification as in a configuration, `module:Class[:options]`, or a class.

    `seed` is that of the policy and of the first workload. Without `cost` nothing is timed, without `processes`
    no other process is started. In a test: `report = check_policy(MyPolicy); assert report.passed, str(report)`.
    Raises ConfigurationError where there is no such policy or its options are wrong.
    """
    kit = _Kit(subject(policy), seed, range(seed, seed + num_workloads))
    for check in kit.checks(cost=cost, processes=processes):
        kit.report.checks.append(check)
        if not check.passed:
            break
    return kit.report


def replay(example: CounterExample, policy: str | type | None = None) -> Finding | None:
    """Run a counter-example again, with its own policy or another; what it finds now, if anything."""
    tested = subject(policy or example.policy)
    if example.num_sequences is not None:
        return _excess(measure(tested, example.num_sequences))
    assert example.workload is not None
    probe = _PROBES.get(example.finding.kind, _finding)
    return probe(tested, example.workload, example.seed)


class _Kit:
    """The checks in order; each needs those before to have passed."""

    def __init__(self, tested: Subject, seed: int, workload_seeds: range) -> None:
        self._tested = tested
        self._seed = seed
        self._workload_seeds = workload_seeds
        self._digests: list[int] = []
        self.report = Report(policy=tested.spec)

    def checks(self, *, cost: bool, processes: bool) -> Iterator[Check]:
        yield self._workloads()
        yield self._determinism(processes and self._tested.is_importable)
        yield self._starvation()
        yield self._memory()
        if cost:
            yield self._cost()

    def _workloads(self) -> Check:
        """No fault, no leak, no over-commit, and everything ends by the policy's own doing."""
        rescues: Counter[str] = Counter()
        boardings = iterations = 0
        most: tuple[int, Workload] = (0, Workload())
        for seed in self._workload_seeds:
            workload = random_workload(seed)
            trial = run_trial(self._tested, workload, self._seed)
            if trial.finding is not None:
                return self._failed("workloads", _finding, workload, trial.finding)
            self._digests.append(digest(trial))
            iterations += trial.iterations
            if _is_patient(workload):
                rescues.update(trial.rescues)
                boardings += trial.num_boardings
                most = max(most, (trial.num_boardings, workload), key=lambda pair: pair[0])
        self.report.rescues = dict(rescues)
        if rescues["gates"] >= boardings >= _FEWEST_BOARDINGS:
            finding = _only_by_gates(self._tested, most[1], self._seed)
            if finding is not None:
                return self._failed("workloads", _only_by_gates, most[1], finding)
        helped = ", ".join(f"{rule} {count}" for rule, count in sorted(rescues.items()))
        summary = f"{len(self._workload_seeds)} random workloads, {iterations} iterations; rules of the engine used: "
        return Check("workloads", True, summary + (helped or "none"))

    def _determinism(self, elsewhere: bool) -> Check:
        """Equal seeds give equal records, byte for byte, in this process and in another."""
        for seed, first in list(zip(self._workload_seeds, self._digests, strict=True))[::_REPEATED]:
            workload = random_workload(seed)
            if digest(run_trial(self._tested, workload, self._seed)) != first:
                message = f"two runs of workload {seed} with the same seed gave different records"
                return self._failed(
                    "determinism", _not_repeated, workload, Finding("not_deterministic", message), max_tries=60
                )
        if not elsewhere:
            return Check("determinism", True, "the same records in two runs")
        workloads = [random_workload(seed) for seed in self._workload_seeds[:_NUM_ELSEWHERE]]
        there = digests_elsewhere(self._tested.spec, self._seed, workloads)
        for workload, first, second in zip(workloads, self._digests, there, strict=False):
            if first != second:
                finding = Finding("not_deterministic", _OTHERS_ELSEWHERE)
                # Not shrunk: of few things a set often has the same order by chance.
                return self._failed("determinism", _differs_elsewhere, workload, finding, max_tries=0)
        return Check("determinism", True, "the same records in two runs and in another process")

    def _starvation(self) -> Check:
        """Nobody is left to the engine's own bound on waiting, or waits longer than the policy promises."""
        promised = getattr(self._tested.build(self._seed).policy, "promised_wait_iterations", None)
        for name, workload in floods(max(_MAX_WAIT_ITERATIONS, 2 * (promised or 0))).items():
            trial = run_trial(self._tested, workload, self._seed)
            finding = _starved(trial, promised, workload)
            if finding is not None:
                return self._failed(f"starvation by {name}", _starves, workload, finding, max_tries=12)
            self.report.waits.append(
                Wait(
                    flood=name,
                    longest_wait_iterations=trial.longest_wait_iterations,
                    answered_after_iterations=trial.iterations - workload.wishes[0].at,
                    max_wait_iterations=workload.machine.max_wait_iterations,
                    promised_wait_iterations=promised,
                    rescues=trial.rescues,
                )
            )
        longest = max(wait.longest_wait_iterations for wait in self.report.waits)
        promise = "no promise of its own" if promised is None else f"promised {promised}"
        return Check("starvation", True, f"longest wait in a flood {longest} iterations, {promise}")

    def _memory(self) -> Check:
        """What the policy remembers does not grow with the requests that it has seen."""
        for iterations in _PHASES:
            finding = _remembers(self._tested, _endless(iterations), self._seed)
            if finding is None:
                return Check("memory", True, "what it remembers does not grow with the requests it has seen")
        assert finding is not None
        return self._failed("memory", _remembers, _endless(_PHASES[0]), finding, max_tries=12)

    def _cost(self) -> Check:
        """The hooks cost no more than a generous multiple of those of the defaults."""
        for num_sequences in SIZES:
            cost = measure(self._tested, num_sequences)
            self.report.costs.append(cost)
            finding = _excess(cost)
            if finding is not None:
                self.report.counter_example = CounterExample(
                    policy=self._tested.spec, seed=self._seed, finding=finding, num_sequences=num_sequences
                )
                return Check("cost", False, finding.message)
        times = ", ".join(f"{cost.times:.2f} at {cost.num_sequences}" for cost in self.report.costs)
        return Check("cost", True, f"times that of all hooks of the defaults: {times} sequences")

    def _failed(self, name: str, probe: Probe, workload: Workload, finding: Finding, max_tries: int = 300) -> Check:
        """Shrink the workload to one that still shows the same, and keep that."""
        latest = probe(self._tested, workload, self._seed) or finding

        def fails(smaller: Workload) -> bool:
            nonlocal latest
            found = probe(self._tested, smaller, self._seed)
            if found is None or found.kind != finding.kind:
                return False
            latest = found  # not asked for again: what goes by chance might not show a second time
            return True

        smallest = shrink(workload, fails, max_tries)
        self._keep(latest, smallest)
        return Check(name, False, latest.message)

    def _keep(self, finding: Finding, workload: Workload) -> None:
        self.report.counter_example = CounterExample(
            policy=self._tested.spec, seed=self._seed, finding=finding, workload=workload
        )


def _is_patient(workload: Workload) -> bool:
    """Whether the policy alone should do: it is in force, and the bound on waiting so far that nothing reaches it."""
    return workload.machine.max_wait_iterations >= Machine().max_wait_iterations and not workload.swaps


def _finding(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    return run_trial(tested, workload, seed).finding


def _only_by_gates(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    trial = run_trial(tested, workload, seed)
    if not trial.rescues.get("gates", 0) >= trial.num_boardings >= _FEWEST_BOARDINGS:
        return None
    return Finding(
        "gates",
        f"each of {trial.num_boardings} times that a sequence boarded, nothing ran and gates held it: it boarded "
        "only because the engine passes over gates then",
    )


def _not_repeated(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    first = run_trial(tested, workload, seed).records
    for _ in range(_REPLAYS - 1):
        records = run_trial(tested, workload, seed).records
        if records != first:
            pairs = zip(first, records, strict=False)
            where = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 1 + min(len(first), len(records)))
            return Finding("not_deterministic", f"two runs with the same seed differ from iteration {where} on")
    return None


def _differs_elsewhere(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    here = digest(run_trial(tested, workload, seed))
    same = [here] == digests_elsewhere(tested.spec, seed, [workload])
    return None if same else Finding("not_deterministic", _OTHERS_ELSEWHERE)


def _differs(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    finding = _not_repeated(tested, workload, seed)
    if finding is None and tested.is_importable:
        finding = _differs_elsewhere(tested, workload, seed)
    return finding


def _starves(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    promised = getattr(tested.build(seed).policy, "promised_wait_iterations", None)
    return _starved(run_trial(tested, workload, seed), promised, workload)


def _starved(trial: Trial, promised: int | None, workload: Workload) -> Finding | None:
    if trial.finding is not None:
        return msgspec.structs.replace(trial.finding, kind="starvation") if _hung(trial) else trial.finding
    if trial.rescues.get("overdue"):
        return Finding(
            "starvation",
            f"a request waited {trial.longest_wait_iterations} iterations and boarded only by the engine's own bound "
            f"on waiting; a policy that lets somebody wait so long says how long, by promised_wait_iterations",
        )
    if trial.rescues.get("held"):
        return Finding("starvation", "results were held back until the engine released them, after its longest wait")
    ahead = workload.iterations_ahead
    if promised is not None and trial.longest_wait_iterations > promised + ahead:
        return Finding(
            "starvation",
            f"a request waited {trial.longest_wait_iterations} iterations; the policy promises {promised}, and those "
            f"ahead take at most {ahead}",
        )
    return None


def _hung(trial: Trial) -> bool:
    return trial.finding is not None and trial.finding.kind == "unfinished"


def _endless(iterations: int) -> Workload:
    return Workload(flood=Flood(clients=6, wish=Wish(prompt_tokens=2, output_tokens=2)), iterations=3 * iterations)


def _remembers(tested: Subject, workload: Workload, seed: int) -> Finding | None:
    """Whether the last third of the iterations left more behind than is bounded."""
    assert workload.iterations is not None
    counted: dict[int, int] = {}
    moments = (workload.iterations * 2 // 3, workload.iterations)

    def watch(iteration: int, policy: object) -> None:
        if iteration in moments:
            counted[iteration] = num_remembered(policy)

    trial = run_trial(tested, workload, seed, watch)
    if trial.finding is not None:
        return trial.finding
    grown = counted[moments[1]] - counted[moments[0]]
    seen = trial.num_boardings / 3
    if grown < _REMEMBERED_EACH * seen:
        return None
    return Finding("leak", f"remembers {grown} things more after {seen:.0f} requests more, all of which are gone")


def _excess(cost: Cost) -> Finding | None:
    if not cost.is_excessive:
        return None
    return Finding(
        "slow",
        f"its hooks take {cost.times:.0f} times as long as all of the defaults' with {cost.num_sequences} sequences "
        f"({1e6 * cost.policy_seconds:.0f} us an iteration); at most {MOST_TIMES:.0f} times is right",
    )


_PROBES: dict[str, Probe] = {
    "gates": _only_by_gates,
    "not_deterministic": _differs,
    "starvation": _starves,
    "leak": _remembers,
}
