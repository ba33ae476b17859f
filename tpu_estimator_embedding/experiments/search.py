# SPDX-License-Identifier: Apache-2.0
"""A search for the best setting with Optuna, which is kept in the sweep's directory.

Every trial is a run of a setting. Optuna suggests the setting, receives the metric as the run
evaluates, and says which runs are hopeless. What it received is in `search.journal`, so that a
search goes on after its process was killed.
"""

import importlib.util
import math
import pathlib
from typing import Any

from tpu_estimator_embedding.experiments.event_files import Curves
from tpu_estimator_embedding.experiments.files import read_json, write_json
from tpu_estimator_embedding.experiments.results import RunResult, collect, is_lower_better
from tpu_estimator_embedding.experiments.run_directory import Run
from tpu_estimator_embedding.experiments.search_space import Range, SearchSpace, setting_at
from tpu_estimator_embedding.experiments.setting import Setting, setting_of
from tpu_estimator_embedding.experiments.sweep_directory import RECORD
from tpu_estimator_embedding.experiments.sweep_report import SearchReport

HOW_TO_GET = "pip install 'tpu_estimator_embedding[search]'"

# Trials with random settings before Optuna models the metric, and before it stops any run. With
# its default of 10, the 15 trials of a short search would leave 5 for the model.
_FIRST_TRIALS = 5

_NAME = "sweep"
_JOURNAL = "search.journal"
_SETTING = "setting"  # what a trial keeps beside the values: the overrides of its run
_CONTINUES = "continues"  # and the number of the trial whose run was not finished


def check_installed() -> None:
    """Raises ValueError if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise ValueError(f"`--search optuna` needs Optuna, which is not installed. Run "
                         f"`{HOW_TO_GET}`.")


def replace_unseen_metric(directory: pathlib.Path, space: SearchSpace, what: dict[str, Any]) -> str:
    """Begins a search again if only its metric is another, and no run has the one of before.

    So a mistyped metric costs nothing. The runs are kept, and are those of the first trials again,
    whose random settings follow from their numbers.

    Args:
        directory: directory of the sweep.
        space: what to choose from.
        what: the record of the sweep, with the new metric.

    Returns:
        The metric of before; empty if nothing was to be done.
    """
    path = directory / RECORD
    noted = read_json(path)
    before = ((noted or {}).get("search") or {}).get("metric")
    if before in (None, what["search"]["metric"]) or noted != {
            **what, "search": {**what["search"], "metric": before}}:
        return ""
    if Search(directory, space, before).has_values:
        return ""
    (directory / _JOURNAL).unlink(missing_ok=True)
    write_json(path, what)
    return str(before)


class Search:
    """The trials of a search, those of earlier processes included.

    Attributes:
        directory: directory of the sweep.
        space: what to choose from.
        metric: what to make as large, or small, as possible; its name says which.
    """

    def __init__(self, directory: pathlib.Path, space: SearchSpace, metric: str) -> None:
        import optuna
        from optuna.storages import JournalStorage, journal

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # progress is on the sweep's line
        self.directory, self.space, self.metric = directory, space, metric
        directory.mkdir(parents=True, exist_ok=True)
        trials = directory / _JOURNAL
        _cut_unfinished_line(trials)
        self._study = optuna.create_study(
            storage=JournalStorage(journal.JournalFileBackend(str(trials))),
            study_name=_NAME, load_if_exists=True,
            direction="minimize" if is_lower_better(metric) else "maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_FIRST_TRIALS, n_warmup_steps=0))
        self._distributions = {name: (
            optuna.distributions.FloatDistribution(item.low, item.high, log=item.is_log)
            if isinstance(item, Range) else optuna.distributions.CategoricalDistribution(
                item.values)) for name, item in space.items()}
        self._trials: dict[Setting, list[optuna.Trial]] = {}  # of runs that are going on
        self._told: dict[int, int] = {}  # number of a trial -> the last step that was reported

    @property
    def settings(self) -> list[Setting]:
        """The settings tried so far, in their order."""
        return list(dict.fromkeys(
            setting_of(trial.user_attrs[_SETTING]) for trial in self._study.trials
            if _SETTING in trial.user_attrs))

    def resume(self) -> None:
        """Repeats the trials whose runs were killed or failed, before it suggests others."""
        import optuna

        trials = self._study.trials
        continued = {trial.user_attrs.get(_CONTINUES) for trial in trials}
        for trial in trials:
            is_running = trial.state == optuna.trial.TrialState.RUNNING
            if is_running:
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            if trial.number in continued or not trial.params or not (
                    is_running or trial.state == optuna.trial.TrialState.FAIL):
                continue
            if is_running or not self._run(setting_of(trial.user_attrs[_SETTING])).is_done:
                self._study.enqueue_trial(trial.params, {_CONTINUES: trial.number})

    @property
    def count(self) -> int:
        """How many trials there are, each of which counts once, however often it was repeated."""
        return sum(_CONTINUES not in trial.user_attrs for trial in self._study.trials)

    @property
    def has_successes(self) -> bool:
        """Whether any trial has run to its end, or was pruned."""
        import optuna

        states = optuna.trial.TrialState
        return bool(self._study.get_trials(False, (states.COMPLETE, states.PRUNED)))

    @property
    def has_values(self) -> bool:
        """Whether the metric was seen in any run."""
        return any(trial.value is not None or trial.intermediate_values
                   for trial in self._study.trials)

    @property
    def _waiting(self) -> int:
        import optuna

        return len(self._study.get_trials(False, (optuna.trial.TrialState.WAITING,)))

    def next_run(self, most: int) -> Run | None:
        """Returns the run of another trial; None if there are `most` trials already.

        A setting that was run before, or is running, is not run again: it has its result.
        """
        import optuna

        while self._waiting or self.count < most:
            # Another seed for every trial, or a search that goes on would repeat its first trials.
            self._study.sampler = optuna.samplers.TPESampler(
                n_startup_trials=_FIRST_TRIALS, seed=len(self._study.trials), constant_liar=True)
            trial = self._study.ask(self._distributions)
            setting = setting_at(self.space, trial.params)
            trial.set_user_attr(_SETTING, setting.texts)
            self._trials.setdefault(setting, []).append(trial)
            run = self._run(setting)
            if len(self._trials[setting]) == 1 and not run.is_done:
                return run
            if run.is_done:
                self.tell(run, None)
        return None

    def is_hopeless(self, run: Run, curves: Curves) -> bool:
        """Whether a run is worse than the median of the others at the steps that it evaluated."""
        [trial, *_] = self._trials[run.setting]
        told = self._told.setdefault(trial.number, -1)
        for step, value in curves.get(self.metric, ()):
            if step > told:
                trial.report(value, step)
                self._told[trial.number] = step
        return trial.should_prune()

    def tell(self, run: Run, result: RunResult | None) -> None:
        """Records that a run has ended, and how."""
        import optuna

        states = optuna.trial.TrialState
        if result is None:
            result = collect(run)
        value = result.final(self.metric)
        for trial in self._trials.pop(run.setting, []):
            if result.is_pruned:
                self._study.tell(trial, state=states.PRUNED)
            elif result.error or value is None or math.isnan(value):
                self._study.tell(trial, state=states.FAIL)
            else:
                self._study.tell(trial, value)

    def report(self) -> SearchReport:
        """Returns what a report says about the search.

        The importance is that of PED-ANOVA, which needs no other package. One setting has all of
        it, and of a few trials none is known.
        """
        import optuna

        values = [trial.value for trial in self._study.get_trials(
            False, (optuna.trial.TrialState.COMPLETE,))]
        is_known = len(self.space) > 1 and len(values) >= _FIRST_TRIALS and len(set(values)) > 1
        importances = optuna.importance.get_param_importances(
            self._study, evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
            ) if is_known else {}
        return SearchReport({name: item.is_log for name, item in self.space.items()
                             if isinstance(item, Range)}, importances, len(values))

    def _run(self, setting: Setting) -> Run:
        return Run(self.directory, setting, 0)


def _cut_unfinished_line(journal: pathlib.Path) -> None:
    """Removes the half of a line that a full disk or a killed process has left.

    Optuna skips it, but would then write behind it, and could never read that line again.
    """
    if not journal.exists():
        return
    with journal.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
