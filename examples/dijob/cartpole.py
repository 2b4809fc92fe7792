"""CartPole by DQN, as a DIJob of DI-engine 0.5.3: python cartpole.py coordinator|collector|learner

The file is its configuration too, as DI-engine reads it. Pods share the working directory: policies and
trajectories travel through files, and requests through di-server's addresses.
"""

import os
import shutil
import sys
import tempfile

from easydict import EasyDict

NAME = "cartpole_dqn"

main_config = EasyDict(
    exp_name=NAME,
    env={
        "collector_env_num": 4,
        "collector_episode_num": 2,
        "evaluator_env_num": 3,
        "evaluator_episode_num": 1,
        "stop_value": float(os.environ.get("STOP_VALUE", "100")),
    },
    policy={
        "cuda": False,
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [64, 64], "dueling": True},
        "nstep": 3,
        "discount_factor": 0.97,
        "learn": {
            "batch_size": 32,
            "learning_rate": 0.001,
            "learner": {"learner_num": 1, "send_policy_freq": 1},
        },
        "collect": {"n_sample": 16, "collector": {"collector_num": 2, "update_policy_second": 3}},
        "eval": {"evaluator": {"eval_freq": 50}},
        "other": {
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 5000},
            "replay_buffer": {"replay_buffer_size": 50_000, "enable_track_used_data": False},
            "commander": {"collector_task_space": 0, "learner_task_space": 1, "eval_interval": 3},
        },
    },
)
create_config = EasyDict(
    env={"type": "cartpole", "import_names": ["dizoo.classic_control.cartpole.envs.cartpole_env"]},
    env_manager={"type": "base"},
    policy={"type": "dqn_command"},
    learner={"type": "base", "import_names": ["ding.worker.learner.base_learner"]},
    collector={"type": "zergling", "import_names": ["ding.worker.collector.zergling_parallel_collector"]},
    commander={"type": "steady", "import_names": []},
    comm_learner={"type": "flask_fs", "import_names": ["ding.worker.learner.comm.flask_fs_learner"]},
    comm_collector={"type": "flask_fs", "import_names": ["ding.worker.collector.comm.flask_fs_collector"]},
)
system_config = EasyDict(
    coordinator={
        "operator_server": {  # no system_addr, no api_version: the environment has both
            "init_replicas_request": {
                "collectors": {"replicas": 2},
                "learners": {"gpus": "0", "replicas": 1},
            },
            "collector_target_num": 2,
            "learner_target_num": 1,
        },
    },
    path_data=f"./{NAME}/data",
    path_policy=f"./{NAME}/policy",
    communication_mode="auto",
    learner_gpu_num=0,
)


def register_commander() -> None:
    """Register "steady": with DI-engine's own commander the job may never end.

    A collector that finishes within three seconds of the last evaluation takes back that training is over.
    """
    from ding.utils import COMMANDER_REGISTRY
    from ding.worker.coordinator.solo_parallel_commander import SoloCommander

    @COMMANDER_REGISTRY.register("steady")
    class Steady(SoloCommander):
        over = False

        def finish_collector_task(self, task_id, finished_task):
            self.over = super().finish_collector_task(task_id, finished_task) or self.over
            return self.over


def main(role: str) -> None:
    """Run one role until the coordinator has seen the reward that is enough."""
    from ding.config import utils
    from ding.entry import dist_entry

    register_commander()
    if role != "coordinator":  # which the others find by the machine's address
        utils.default_host = os.environ.get("POD_IP", utils.default_host)
    with tempfile.TemporaryDirectory() as folder:
        config = shutil.copy(__file__, folder)
        compiled = dist_entry.dist_prepare_config(config, 0, "k8s", None, None, None, None, None, None)
        match role:
            case "coordinator":
                dist_entry.dist_launch_coordinator(compiled, 0, None, True, True)
                sys.stdout.flush()
                os._exit(0)  # DI-engine's thread for a collector that was lost at work would wait for ever
            case "collector":
                dist_entry.dist_launch_collector(compiled, 0, None, None, True)
            case "learner":
                dist_entry.dist_launch_learner(compiled, 0, None, None, True)


if __name__ == "__main__":
    main(sys.argv[1])
