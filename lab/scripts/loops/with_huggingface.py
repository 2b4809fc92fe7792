"""Hugging Face's Trainer with our callback."""

from typing import Any

import torch
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

from elasticjob.trainer.integrations.huggingface import ElasticCallback
from lab.scripts.loops.run import args, at, end, every, export, last_line, place, say
from lab.scripts.loops.torchs import Backwards, Counting, Numbers, optimizer_of, scheduler_of, state_of


class Trained(Trainer):
    """Fails where it is told."""

    def training_step(self, model: Any, inputs: Any, *more: Any) -> Any:
        """Return the loss of a batch."""
        step = self.state.global_step + 1
        at("before", step, self.args.process_index)
        say(step=step, epoch=int(self.state.epoch or 0), records=inputs["index"].tolist())
        loss = super().training_step(model, inputs, *more)
        at("after", step, self.args.process_index)
        return loss

    def _get_train_sampler(self, *given: Any) -> Sampler[int] | None:
        if args.sampler == "shuffle":
            sampler: Sampler[int] | None = super()._get_train_sampler(*given)
            return sampler
        return Backwards() if args.sampler == "reversed" else SequentialSampler(Numbers())


class Tells(TrainerCallback):
    """Says each step."""

    def on_train_begin(self, given: Any, state: Any, control: Any, **more: Any) -> None:
        """Say where the training begins."""
        say(begins=state.global_step)

    def on_step_end(self, given: Any, state: Any, control: Any, **more: Any) -> None:
        """Say that a step is done."""
        at("behind", state.global_step, given.process_index)
        say(done=state.global_step)
        control.should_training_stop |= state.global_step == args.stop


model = Counting(dropout=0.1)
settings = TrainingArguments(
    str(args.folder / "out"),
    num_train_epochs=args.epochs,
    per_device_train_batch_size=1,
    max_grad_norm=1e9,
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=args.seed,
)
settings.per_device_train_batch_size = args.batch // settings.world_size
elastic = ElasticCallback(place, every=every, save_every=args.save_every)
optimizer = optimizer_of(model)
scheduler = scheduler_of(optimizer)
trainer = Trained(
    model,
    settings,
    train_dataset=Numbers(),
    callbacks=[Tells(), elastic],  # a save may be the end
    optimizers=(optimizer, scheduler),
)
trainer.train(resume_from_checkpoint=elastic.newest(trainer))
if settings.process_index == 0:
    export(lambda path: torch.save(state_of(model), path))
end(**state_of(model), steps=trainer.state.global_step, scheduler=scheduler.state_dict())
last_line()
