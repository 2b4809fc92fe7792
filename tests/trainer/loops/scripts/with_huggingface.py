"""Hugging Face's Trainer with our callback."""

import torch
from shared import args, at, export, last_line, say
from torchs import Backwards, Counts, Numbers, end, optimizer_of, state_of
from transformers import Trainer, TrainerCallback, TrainingArguments

from elasticjob.trainer.integrations.huggingface import ElasticCallback


class Trained(Trainer):
    """Fails where it is told."""

    def training_step(self, *given, **more):
        at("before", self.state.global_step + 1, self.args.process_index)
        loss = super().training_step(*given, **more)
        at("after", self.state.global_step + 1, self.args.process_index)
        return loss

    def _get_train_sampler(self, *given):
        if args.sampler == "shuffle":
            return super()._get_train_sampler(*given)
        return Backwards() if args.sampler == "reversed" else torch.utils.data.SequentialSampler(Numbers())


class Tells(TrainerCallback):
    """Says each step."""

    def on_train_begin(self, given, state, control, **more):
        say(begins=state.global_step, rank=given.process_index)

    def on_step_end(self, given, state, control, **more):
        at("behind", state.global_step, given.process_index)
        say(step=state.global_step, rank=given.process_index)
        control.should_training_stop |= state.global_step == args.stop


model = Counts()
settings = TrainingArguments(
    str(args.folder / "out"),
    num_train_epochs=args.epochs,
    per_device_train_batch_size=1,
    lr_scheduler_type="constant",
    max_grad_norm=1e9,
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    seed=args.seed,
)
settings.per_device_train_batch_size = args.batch // settings.world_size
elastic = ElasticCallback(args.folder / "kept", every=0 if args.wrong else 1, save_every=args.save_every)
trainer = Trained(
    model,
    settings,
    train_dataset=Numbers(),
    callbacks=[Tells(), elastic],
    optimizers=(optimizer_of(model), None),
)
trainer.train(resume_from_checkpoint=elastic.newest(trainer))
rank = settings.process_index
if rank == 0:
    export(lambda path: torch.save(state_of(model), path))
end(rank, model, steps=trainer.state.global_step)
last_line()
