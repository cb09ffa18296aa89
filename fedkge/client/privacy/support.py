"""What cannot be trained privately, said before anything is trained."""

from __future__ import annotations

from fedkge.client.models.model import Model
from fedkge.client.privacy.plan import Plan, check_delta
from fedkge.datasets.graph import KnowledgeGraph
from fedkge.errors import SettingError
from fedkge.experiment import SOUND_CLIP, DPSettings, TrainingSettings

__all__ = ["check_training"]


def check_training(
    model: type[Model], graph: KnowledgeGraph, settings: TrainingSettings, dp: DPSettings
) -> None:
    """Refuse settings that would not protect, or that private training does not reach."""
    Plan.of(graph, settings, dp)  # refuses what cannot be planned
    check_delta(dp, graph)
    if settings.device != "cpu":
        raise SettingError('training.device: private training runs on the processor; set it to "cpu"')
    if dp.mode == "paper" and model.projects:
        raise SettingError(
            f'privacy.dp.mode: "paper" is not supported for {model.__name__}, because it clips statements '
            'apart and this model\'s relations map the candidates of a triple together; use mode = "sound"'
        )
    if dp.mode == "sound" and dp.clip is None and dp.percentile != DPSettings().percentile:
        raise SettingError(
            'privacy.dp.percentile: mode "sound" takes no percentile, because noise reaches every row in '
            f"proportion to the bound; give it as privacy.dp.clip, or leave both out for {SOUND_CLIP}"
        )
