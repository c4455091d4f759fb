"""The columns of the frames, one line each: what notebooks and the documentation go by, and where a
record has the value (its path; with a dot at the end the column's name follows)."""

from __future__ import annotations

from collections.abc import Callable

from analysis.table import Column, DType


def _of(dtype: DType, unit: str = "") -> Callable[..., Column]:
    def column(name: str, description: str, path: str = "", unit: str = unit) -> Column:
        path += name if path.endswith(".") else ""
        return Column(name, dtype, description=description, path=path, unit=unit)

    return column


_text, _list, _count, _bool = _of("string"), _of("object"), _of("Int64"), _of("boolean")
_real, _seconds = _of("Float64"), _of("Float64", "s")
#: Said wherever ``oversubscribed`` keeps a time from being compared.
SHARED_CORES = "ranks share cores: not a scaling figure"
#: Of the config, so of every cell whose config is known.
CONFIG = (
    _text("technique", "name of its row in techniques.yaml", "config.technique.name"),
    _text("technique_label", "the same, with what differs where one name has several settings"),
    _list("context", "settings other than the technique that differ somewhere in the sweep"),
    _text("workload", "equal for runs of the same data, model, target and epochs"),
    _text("condition", "equal for runs that differ in their seed or keep_weights alone: a hash of "
          "the config"),
    _text("technique_settings", "equal for runs of the same technique: a hash of its settings"),
    _text("dataset", "name, or folder:PATH", "config."),
    _count("image_size", "of a folder's images; null where the data set has its own", "config.",
           unit="pixels"),
    _text("model", "the network", "config."),
    _real("width", "what resnet_mini's filters are multiplied by", "config."),
    _bool("shortcuts", "whether resnet_mini has its shortcuts", "config."),
    _text("pretrained", "file of weights that the run began with", "config."),
    _real("data_fraction", "share of the training images that is used", "config."),
    _text("validate_on", "images that accuracy is measured on", "config."),
    _text("partition", "how ranks share the images", "config."),
    _text("framework", "who averages the gradients", "config."),
    _text("target", "accuracy to be reached, in words"),
    _real("target_accuracy", "of validation, to be reached", "config.target.validation_accuracy"),
    _bool("deterministic", "TensorFlow's deterministic operations were asked for", "config."),
    _text("scaling", "weak: batch per rank fixed; strong: global batch fixed", "config."),
    _count("gpus", "ranks: one per GPU, or per group of cores where there is none", "config."),
    _count("batch_per_rank", "of one batch", "config.", unit="images"),
    _count("accumulation", "batches per rank and step", "config."),
    _count("global_batch", "of a step over all ranks, at the start", "config.", unit="images"),
    _count("epochs", "that the config asks for", "config."),
    _count("epoch_images", "of an epoch, where steps_per_epoch says it", unit="images"),
    _bool("changes_images", "training images are augmented"),
    _count("sharpness_images", "that sharpness is measured on", "config.", unit="images"),
    _real("base_lr", "learning rate of the base batch; the technique's rule scales it",
          "config.technique."),
    _count("seed", "of the run", "config."),
)  # fmt: skip
#: Columns of CONFIG that are worked out over all cells of a sweep.
LABELS = ("technique_label", "context")
#: Parts of a step.
STEP_PARTS = (
    _seconds("step_s", "a step that is not sampled"),
    _seconds("input_s", "of step_s: waiting for the batch"),
    _seconds("compute_s", "of a sampled step: forward, backward, update"),
    _seconds("compute_fastest_s", "compute_s of the rank that computes fastest"),
    _seconds("update_s", "of compute_s: the optimizer's part"),
    _seconds("communication_s", "of a sampled step: the all-reduce, with waiting for slower ranks"),
    _seconds("exposed_s", "communication that overlaps no computing"),
    _seconds("waiting_s", "of communication_s: until the slowest rank was there"),
    _seconds("negotiation_s", "of a message to ranks that are all there"),
)
RUNS = (
    _text("cell_id", "name of the cell and of its folder", "cell_id"),
    _text("status", "completed or diverged", "status"),
    *CONFIG,
    _count("global_batch_last", "of a step of the last epoch, where the batch grows",
           "epochs.last.global_batch", unit="images"),
    _count("epochs_run", "that were trained"),
    _count("steps", "over all epochs"),
    _count("skipped_steps", "of these, without an update, since a number overflowed"),
    _count("images", "over all epochs and ranks, really processed"),
    _real("lr_peak", "largest learning rate of an epoch's first or last step or mean, as applied"),
    _real("train_loss", "mean over the last epoch", "epochs.last."),
    _real("train_accuracy", "running mean over the last epoch", "epochs.last."),
    _text("train_accuracy_why", "why it is null"),
    _real("validation_loss", "after the last epoch", "epochs.last."),
    _real("validation_accuracy", "after the last epoch, never the best one", "epochs.last."),
    _text("validation_accuracy_why", "why it is null"),
    _real("sharpness_largest", "largest eigenvalue of the Hessian where the run ended",
          "sharpness.largest"),
    _real("sharpness_scaled", "likewise, by changes relative to the norms of the filters",
          "sharpness.scaled"),
    _seconds("train_s", "training, over all epochs"),
    _seconds("eval_s", "evaluation, over all epochs"),
    _seconds("end_to_end_s", "all attempts, from start to end, without the gaps between them"),
    _count("attempts", "starts of the cell"),
    _real("images_per_s", "steady state, all ranks: median over epochs", "throughput."),
    _text("images_per_s_why", "why it is null"),
    *STEP_PARTS,
    _text("step_parts_why", "why parts of a step are null; else medians, averaged over ranks"),
    _text("why_no_overlap", "why no gradient is sent before all are there", "why_no_overlap"),
    _count("gradient_bytes", "of one rank's gradients in one step, as they travel",
           "gradient_bytes", unit="bytes"),
    _list("alarms", "findings that make the numbers doubtful"),
    _bool("oversubscribed", "ranks shared cores, so that times are no scaling figures", "world."),
    _text("device_kind", "cpu or gpu", "world."),
    _text("device", "what a rank computed on", "world."),
    _count("cores_per_rank", "CPU cores of each rank", "world."),
    _count("nodes", "machines", "world."),
    _list("hosts", "names of the machines"),
    _text("first_host", "machine of rank 0, which cpu, gpu, driver and kernel are of"),
    _text("launcher", "what started the ranks", "world."),
    _text("controller", "how ranks agreed", "world."),
    _text("data_plane", "what carried the gradients", "world."),
    _text("interface", "network interface between ranks", "world."),
    _text("data_fingerprint", "sha256 over the images in memory", "data.fingerprint"),
    _text("order", "how batches were drawn", "data."),
    _count("train_images", "used", "data."),
    _count("validation_images", "that accuracy was measured on", "data."),
    _text("git_commit", "of the program", "provenance."),
    _bool("git_dirty", "whether its checkout had uncommitted changes", "provenance."),
    _text("image_digest", "of the container's image", "provenance."),
    _text("cpu", "model", "provenance."),
    _text("gpu", "model", "provenance."),
    _text("driver", "of the GPU", "provenance."),
    _text("kernel", "of the operating system", "provenance."),
    _text("versions", "of all packages, as JSON"),
    _text("slurm_job_id", "of the last attempt", "provenance."),
    _text("started_at", "time, ISO 8601"),
    _text("ended_at", "time, ISO 8601"),
)  # fmt: skip
#: Of a cell that is not usable, too, as far as its record or epochs.jsonl has them.
KNOWN_OF_LOST = ("epochs_run", "steps", "images", "train_s", "eval_s")
PLANNED = (
    _text("cell_id", "name of the cell and of its folder"),
    _text("state", "usable, missing, failed, rejected or unreadable"),
    _bool("known", "whether its config is known; where not, the columns of the config are null"),
    *CONFIG,
    *(column for column in RUNS if column.name in KNOWN_OF_LOST),
)
#: Of a column of a run, or of a config.
DTYPES = {column.name: column.dtype for column in RUNS}
NOISE = (
    _count("noise_steps", "steps that the noise of the epoch was measured in",
           "epochs.noise.steps"),
    _count("noise_batch_small", "images of a single gradient", "epochs.noise.batch_small"),
    _count("noise_batch_big", "images of their mean", "epochs.noise.batch_big"),
    _real("noise_trace", "estimated trace of the per-image gradient covariance",
          "epochs.noise.trace"),
    _real("noise_gradient_sq", "estimated squared norm of the true gradient",
          "epochs.noise.gradient_sq"),
    _real("noise_b_simple", "trace / gradient_sq", "epochs.noise.b_simple", unit="images"),
    _real("noise_low", "lower end of its 95 % interval", "epochs.noise.low", unit="images"),
    _real("noise_high", "upper end of it", "epochs.noise.high", unit="images"),
    _bool("noise_censored", "gradient_sq cannot be told from zero: b_simple is above noise_low"),
)  # fmt: skip
#: As the record has it; the record's name where it differs.
MEASURED = (
    _count("epoch", "from 1", "epochs."),
    _count("attempt", "that trained it", "epochs."),
    _count("epoch_batch", "images of a step", "epochs.global_batch"),
    _count("accumulation", "batches per rank and step", "epochs."),
    _count("steps", "of the optimizer", "epochs."),
    _count("images", "really processed, all ranks", "epochs."),
    _seconds("train_s", "training", "epochs."),
    _seconds("eval_s", "evaluation", "epochs."),
    _real("lr_first", "rate of the first step", "epochs."),
    _real("lr_last", "rate of the last step", "epochs."),
    _real("lr_mean", "over the steps that were applied", "epochs."),
    _real("train_loss", "mean per image", "epochs."),
    _real("train_accuracy", "running mean", "epochs."),
    _real("validation_loss", "mean per image", "epochs."),
    _real("validation_accuracy", "over all validation images", "epochs."),
    _count("skipped_steps", "without an update, since a number overflowed", "epochs."),
    _real("gradient_norm", "of the reduced gradient, mean over the steps", "epochs."),
    _real("gain", "AdaScale's, mean over the steps", "epochs."),
    _seconds("suspended_s", "stopped, frozen or asleep; in no other seconds", "epochs."),
    _count("sampled_steps", "taken in parts to measure them", "epochs."),
    _seconds("sampled_s", "of train_s: these steps", "epochs."),
)
EPOCHS = (
    *MEASURED,
    _bool("steady", "its images/s count for the run's"),
    *NOISE,
    _real("images_per_s", "of the epoch, sampled steps with it"),
    _seconds("train_s_so_far", "training up to the epoch's end, all attempts together"),
    _seconds("seconds_so_far", "the same with evaluation"),
)
SCORES = ("precision", "recall", "f1")
CLASSES = (
    _count("epoch", "after which it was measured"),
    _count("place", "of the class, from 0"),
    _text("class", "name"),
    _count("support", "validation images of the class"),
    *(
        made
        for name in SCORES
        for made in (_real(name, "of the class"), _text(f"{name}_why", "why it is null"))
    ),
)
GOALS = (
    _bool("met", "whether the target was met at as many evaluations in a row as it asks, in time"),
    _count("epoch", "after which it was met"),
    _count("steps", "until then"),
    _count("images", "until then"),
    _seconds("seconds", "of training and evaluation until then"),
    _seconds("train_s", "of training until then"),
    _text("why", "met, hopeless, or the epochs ended first"),
)
#: Of a step on one rank; the fastest one is a run's.
PARTS_OF_A_RANK = tuple(part for part in STEP_PARTS if part.name != "compute_fastest_s")
RANKS = (
    _count("rank", "from 0"),
    _text("host", "machine of the rank"),
    _count("local_rank", "from 0, among the ranks of its host"),
    _count("sampled", "steps that were taken in parts; null: all of them"),
    *PARTS_OF_A_RANK,
    _seconds("outside_epochs_s", "of the last attempt: its first step waited no longer"),
)
#: Frame with several rows of a run -> the columns that are not its run's.
OWN = {"epochs": EPOCHS, "classes": CLASSES, "goals": GOALS, "ranks": RANKS}
#: Of the run, repeated on each of these rows; and those of one frame alone.
_OF_A_RUN = ("cell_id", "status", "technique", "technique_label", "context", "gpus", "global_batch",
             "seed")  # fmt: skip
_OF_ITS_RUN = {"epochs": (), "classes": ("condition",), "goals": ("condition", "target"),
               "ranks": ("condition", "oversubscribed")}  # fmt: skip
FRAMES: dict[str, tuple[Column, ...]] = {
    "planned": PLANNED,
    "runs": RUNS,
    **{
        frame: (
            *(column for column in RUNS if column.name in (*_OF_A_RUN, *_OF_ITS_RUN[frame])),
            *own,
        )
        for frame, own in OWN.items()
    },
}
