"""One wrapper over `transformers.Trainer` for every task.

It adds what a long job on a CPU needs: length-bucketed batches whose order depends on the seed and the epoch alone, a
progress bar, a checkpoint when interrupted (Ctrl-C or a termination signal) and every few minutes, and resuming that
ends with the same weights as a run that was never interrupted.

Several processes (`surroundings/ranks.py`) share out every batch. With L_r the mean loss of the n_r rows (words, …)
that process r has, its loss counts R n_r / Σ n times, so that the mean of R gradients, which is what the library's
DistributedDataParallel makes, is the gradient of the whole batch: as one process has it.
"""

import functools
import json
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainingArguments,
)
from transformers.trainer_pt_utils import nested_concat, nested_numpify

from fastformer.data.batches import LengthBuckets, WeighedShares, items_of, token_budget_batches
from fastformer.engine.devices import USUAL, Place
from fastformer.engine.inference import BATCH_TOKENS
from fastformer.engine.optimizer import DenseAndRowAdam, clip_gradients
from fastformer.engine.settings import TrainingSettings, settled
from fastformer.errors import Interrupted, UserError, diverged
from fastformer.modeling.embeddings import BigramEmbedding
from fastformer.runs.checkpoints import last_complete_checkpoint
from fastformer.runs.resuming import note_seconds
from fastformer.surroundings import ranks
from fastformer.surroundings.files import explain_full_disk, writing_text
from fastformer.surroundings.machine import release, tune
from fastformer.surroundings.progress import progress_bar, quiet_libraries, say

CHECKPOINT_SECONDS = 300
LAUNCHER_SECONDS = 5.0  # within which a launcher hands on a signal
LATEST = 0.1  # share of the latest step in the loss that is shown
NOTE_SECONDS = 0.5  # between two looks at it: on a GPU each waits for the step
FIRST_LOSS = "first_loss.json"  # of a training, which one that is resumed looks up
RISEN = 100  # times the first loss: no training that learns something is there
LAZY_ROWS = 50_000  # from here on updating the rows of an embedding that a batch met is faster than updating all


def train_model(
    model: PreTrainedModel,
    train: Dataset,
    validation: Dataset | Callable[[PreTrainedModel], dict[str, float]],
    *,
    settings: TrainingSettings,
    collate: Callable,
    counted: Callable[[dict[str, Any]], Any] | None = None,
    compute_metrics: Callable | None = None,
    best_metric: str,
    shown: str | None = None,
    folder: Path,
    started: float,
    place: Place = USUAL,
    resume: bool = False,
    show_progress: bool = True,
) -> list[dict[str, Any]]:
    """Train `model` in place and leave it with the weights of its best epoch; return the log of every epoch.

    `best_metric` names the value of `compute_metrics` (larger is better) that picks the epoch, on `validation`, which
    may also be a function that scores the model in a way of its own; `shown` is the one on the progress bar. `folder`
    keeps the checkpoints; the caller deletes it once the run is saved; `started` is when the run began, by
    `time.monotonic`, earlier if it was interrupted, so that a checkpoint knows how long it took. The datasets have
    `lengths`; one with `set_epoch` is told which epoch it is read for. `counted` says of a batch what its loss is a
    mean over, which several processes need to know. `place` is the device, and the numbers of its products.
    """
    tune()
    place.say_idle_gpus()
    checkpoint = ranks.first(lambda: _place_to_start(folder, resume))
    arguments = _arguments(settings, folder, best_metric, place)
    tables = [module for module in model.modules() if _is_lazy(module, model, settings)]
    if ranks.size() > 1 and place.device == "cuda":  # NCCL reduces no sparse gradients
        tables = []
    for table in tables:
        table.sparse = True
    optimizer = DenseAndRowAdam(
        model,
        lr=settled(settings.learning_rate),
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        rates=_rates(model, settings),
    )
    watch = _Watch(show_progress, folder, started, shown)
    trainer = _BucketTrainer(
        settings,
        validation if callable(validation) else None,
        counted,
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=train if callable(validation) else validation,
        data_collator=collate,
        compute_metrics=compute_metrics,
        callbacks=[watch],
        optimizers=(optimizer, None),
    )
    trainer.remove_callback(PrinterCallback)
    try:
        with watch, quiet_libraries(), explain_full_disk(folder):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        ranks.anywhere(True)  # all have loaded the best epoch before the first process goes on and deletes it
    except RuntimeError as error:
        if ranks.size() > 1 and ranks.is_loss_of_another(error):
            raise ranks.lost() from error
        raise
    finally:
        for table in tables:
            table.sparse = False  # a further training may use any optimizer
    model.cpu()
    best = trainer.state.best_model_checkpoint
    if not watch.stopped and (best is None or not Path(best).is_dir()):
        raise UserError(f"{folder}: the checkpoint of the best epoch was deleted meanwhile; train again")
    if watch.stopped:
        step, steps = trainer.state.global_step, trainer.state.max_steps
        raise Interrupted(f"stopped at step {step} of {steps}; run the same command with --resume to continue")
    _check_loss([entry["loss"] for entry in trainer.state.log_history if "loss" in entry], folder)
    return [entry for entry in trainer.state.log_history if f"eval_{best_metric}" in entry]


def _arguments(settings: TrainingSettings, folder: Path, best_metric: str, place: Place) -> TrainingArguments:
    """The settings as transformers' trainer has them."""
    # One process is alone, whatever the launcher's variables say: without this the trainer would look for others.
    with nullcontext() if ranks.size() > 1 else ranks.alone():
        arguments = TrainingArguments(
            output_dir=str(folder / "steps"),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup,
            lr_scheduler_type=settings.schedule,
            max_grad_norm=settings.max_grad_norm,
            seed=settings.seed,
            use_cpu=place.device == "cpu",
            bf16=place.dtype == torch.bfloat16,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,  # the best and the last; with 1 the trainer deletes the last one when it is stopped
            load_best_model_at_end=True,
            metric_for_best_model=best_metric,
            greater_is_better=True,
            restore_callback_states_from_checkpoint=True,
            logging_strategy="epoch",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            label_names=["labels"],
        )
    use_one_device(arguments)
    return arguments


def use_one_device(arguments: TrainingArguments) -> None:
    """One process has one device: with several GPUs the trainer would silently use DataParallel, which is slower."""
    arguments._n_gpu = min(1, arguments.n_gpu)


def _place_to_start(folder: Path, resume: bool) -> Path | None:
    """The checkpoint to continue from; None, and none left, for a training that begins."""
    checkpoint = last_complete_checkpoint(folder) if resume else None
    if checkpoint is None:
        shutil.rmtree(folder / "steps", ignore_errors=True)
    else:
        _move_best(checkpoint)
    return checkpoint


def _check_loss(epochs: list[float], folder: Path) -> None:
    """Refuse a model whose loss has grown without bounds, though some score of it may still be a finite number."""
    begun = json.loads((folder / FIRST_LOSS).read_text()) if (folder / FIRST_LOSS).is_file() else 0.0
    if epochs and not epochs[-1] < RISEN * max(1.0, begun):
        raise diverged(f"the loss has grown from {begun:.3g} to {epochs[-1]:.3g}")


def _move_best(checkpoint: Path) -> None:
    """Tell a checkpoint where the best one is, if the folder was moved: the trainer would silently forget it."""
    path = checkpoint / "trainer_state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    if state["best_model_checkpoint"]:
        state["best_model_checkpoint"] = str(checkpoint.with_name(Path(state["best_model_checkpoint"]).name))
        with writing_text(path) as file:
            json.dump(state, file, indent=2)


def _rates(model: PreTrainedModel, settings: TrainingSettings) -> list[tuple[nn.Module, float]]:
    rates = [(model.get_input_embeddings(), settings.table_rate)]
    pretrained = getattr(model, "pretrained", None)
    return rates if pretrained is None else [*rates, (pretrained, settings.pretrained_rate)]


def _is_lazy(module: nn.Module, model: PreTrainedModel, settings: TrainingSettings) -> bool:
    """Whether only the rows that a batch met are updated; an embedding that is the output matrix too meets all."""
    if isinstance(module, BigramEmbedding):
        return True
    large = isinstance(module, nn.Embedding) and module.num_embeddings >= LAZY_ROWS
    return large and settings.lazy_embeddings and model.get_output_embeddings() is None


class _BucketTrainer(Trainer):
    """The library's trainer with our batches, and clipping that leaves embeddings alone."""

    control: TrainerControl

    def __init__(self, settings: TrainingSettings, score: Callable | None, counted: Callable | None, **options):
        super().__init__(**options)
        self.settings, self.score, self.counted = settings, score, counted
        [self.watch] = [one for one in self.callback_handler.callbacks if isinstance(one, _Watch)]

    def training_step(self, *args, **kwargs) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        self.watch.see(loss)
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args, **kwargs) -> Any:
        count = inputs.pop(WeighedShares.COUNT, None)
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if count is None:
            return loss
        return loss * (ranks.size() * count / ranks.summed(count)).to(loss.dtype)

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        if self.score is None and ranks.size() == 1:
            return super().evaluate(*args, **kwargs)
        model, score = self.model.eval(), self.score
        found = self._scores_of_shares() if score is None else ranks.first(lambda: score(model))
        metrics = {f"eval_{name}": value for name, value in found.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def get_train_dataloader(self) -> DataLoader:
        settings = self.settings
        by_tokens = settings.fill_by == "tokens"
        batches = LengthBuckets(
            self.train_dataset.lengths,
            settled(settings.batch_size),
            settings.seed,
            by_tokens,
            rank=ranks.rank(),
            size=ranks.size(),
        )
        batches.on_epoch = getattr(self.train_dataset, "set_epoch", None)
        if ranks.size() == 1:
            return self._loader(self.train_dataset, batches)
        shares = WeighedShares(self.train_dataset, self.data_collator, settled(self.counted))
        loader = DataLoader(shares, batch_sampler=batches, collate_fn=lambda batch: batch)
        # The batches are this process' own already: the library need not share them out once more.
        device = self.accelerator.device
        return prepare_data_loader(loader, device, num_processes=1, process_index=0, put_on_device=True)

    def _scores_of_shares(self) -> dict[str, float]:
        """Scores of the validation data, of whose batches each process has some: the very numbers of one process."""
        dataset, rank, size = self.eval_dataset, ranks.rank(), ranks.size()
        batches = token_budget_batches(dataset.lengths, BATCH_TOKENS)
        mine = []
        for batch in batches[rank::size]:
            inputs = self.data_collator(items_of(dataset, batch.tolist()))
            _, *found = self.prediction_step(self.model, inputs, prediction_loss_only=False)
            mine.append(nested_numpify(found))
        shares = ranks.gathered(mine)

        def score() -> dict[str, float]:
            in_order = [shares[number % size][number // size] for number in range(len(batches))]
            predictions, labels = functools.reduce(nested_concat, in_order)
            return settled(self.compute_metrics)(EvalPrediction(predictions=predictions, label_ids=labels))

        return ranks.first(score)

    def get_eval_dataloader(self, eval_dataset: Dataset | None = None) -> DataLoader:
        batches = token_budget_batches(self.eval_dataset.lengths, BATCH_TOKENS)
        return self._loader(self.eval_dataset, [batch.tolist() for batch in batches])

    def _loader(self, dataset: Dataset, batches) -> DataLoader:
        loader = DataLoader(dataset, batch_sampler=batches, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)

    def _clip_grad_norm(self, model: PreTrainedModel) -> torch.Tensor:
        return clip_gradients(model, self.args.max_grad_norm)


class _Watch(TrainerCallback):
    """Shows progress, and asks for a checkpoint every few minutes or when a signal says to stop."""

    def __init__(self, show: bool, folder: Path, started: float, shown: str | None):
        self.show, self.folder, self.started, self.last_save = show, folder, started, time.monotonic()
        self.shown = shown  # a bar has room for one score
        self.stopped = self.stopped_within_epoch = False
        self.asked = 0.0  # when it was told to stop
        self.bar: AbstractContextManager[Callable[..., None]] | None = None
        self.advance: Callable[..., None]  # once training begins
        self.loss: torch.Tensor | None = None  # of the last steps, on average
        self.said = 0.0  # when it was shown
        self.score = ""

    def __enter__(self) -> None:
        def stop(number, frame):
            # The launcher repeats a Ctrl-C that the terminal has already sent to all: that is not a second one.
            again = self.stopped and (ranks.size() == 1 or time.monotonic() - self.asked > LAUNCHER_SECONDS)
            if again and number == signal.SIGINT:  # a person asks twice: at once
                raise KeyboardInterrupt
            if self.stopped:
                return
            self.stopped, self.asked = True, time.monotonic()
            say("Stopping: writing a checkpoint after this step (press Ctrl-C again to stop without one).")

        self.handlers = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self.handlers[number] = signal.signal(number, stop)
            except ValueError:  # not the main thread: the caller handles signals
                break

    def __exit__(self, *error) -> None:
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        if self.bar is not None:
            self.bar.__exit__(*error)

    def on_train_begin(self, args, state, control, **kwargs):
        if ranks.size() > 1:  # other dropout in each process; a checkpoint knows better
            torch.manual_seed(args.seed + 1_000_003 * ranks.rank())
        bar = progress_bar("Training", total=state.max_steps, show=self.show)
        self.bar, self.advance = bar, bar.__enter__()
        self.advance(state.global_step)

    def see(self, loss: torch.Tensor) -> None:
        """Remember the loss of a step: the average of the last ten or so."""
        self.loss = loss if self.loss is None else torch.lerp(self.loss, loss, LATEST)

    def on_step_end(self, args, state, control, **kwargs):
        self.advance(1)
        if state.global_step == 1 and self.loss is not None and ranks.is_first():
            (self.folder / FIRST_LOSS).write_text(json.dumps(self.loss.item()))
        if time.monotonic() - self.said > NOTE_SECONDS:
            self._note()
        release()
        steps_per_epoch = state.max_steps // args.num_train_epochs
        if state.global_step % steps_per_epoch == 0:
            return  # the epoch ends here: it is scored and saved as always, then on_epoch_end may stop
        late = time.monotonic() - self.last_save > CHECKPOINT_SECONDS
        self.stopped, late = ranks.anywhere(self.stopped, late)  # all stop after the same step
        control.should_save |= self.stopped or late
        control.should_training_stop |= self.stopped
        self.stopped_within_epoch = self.stopped

    def on_epoch_end(self, args, state, control, **kwargs):
        [self.stopped] = ranks.anywhere(self.stopped)
        control.should_training_stop |= self.stopped
        if self.stopped_within_epoch:  # half an epoch is neither scored nor a candidate for the best
            control.should_evaluate = control.should_save = control.should_log = False

    def on_save(self, args, state, control, **kwargs):
        self.last_save = time.monotonic()
        if ranks.is_first():
            note_seconds(self.folder, self.last_save - self.started)

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if (score := metrics.get(f"eval_{self.shown}")) is not None:
            self.score = f", validation {self.shown} {score:.3f}"
        self._note()

    def _note(self) -> None:
        self.said = time.monotonic()
        if self.loss is not None:
            self.advance(0, note=f"loss {self.loss.item():.3f}{self.score}")
