"""Studies of published papers, by name: each returns a tidy frame with the published figures beside ours.

A recipe is called with a scale, a seed and a folder; what the folder has already is not measured again.
"""

from __future__ import annotations

from fedkge.simulations.studies.dkrl.bridge_study import bridge
from fedkge.simulations.studies.dkrl.epsilon import epsilon_of_texts
from fedkge.simulations.studies.dkrl.fusion_study import fusion
from fedkge.simulations.studies.dkrl.inductive_study import blp, table_1
from fedkge.simulations.studies.dkrl.noised_study import table_2
from fedkge.simulations.studies.dkrl.private_texts import private_texts
from fedkge.simulations.studies.dkrl.text_audit import text_audit
from fedkge.simulations.studies.dpkge import dpkge_epsilon, dpkge_utility
from fedkge.simulations.studies.dpkge.dpkge_active_audit import active_audit
from fedkge.simulations.studies.dpkge.dpkge_attacker import attacker_ranks, neighbouring_graphs
from fedkge.simulations.studies.dpkge.dpkge_audit import privacy_audit
from fedkge.simulations.studies.dpkge.dpkge_clusters import clustering
from fedkge.simulations.studies.dpne import dpne_audit, dpne_tables
from fedkge.simulations.studies.encoder_leakage import encoder_leakage
from fedkge.simulations.studies.fedr import fedr_figures, fedr_tables
from fedkge.simulations.studies.fedr.fede_apart import fede_apart
from fedkge.simulations.studies.fedr.federation_gain import federation_gain
from fedkge.simulations.studies.fedr.noge_candidates import noge_candidates
from fedkge.simulations.studies.fedr.noge_graphs import noge_graphs
from fedkge.simulations.studies.fedr.reconstruction_study import reconstruction_tables
from fedkge.simulations.studies.fedr.three_answers import three_answers
from fedkge.simulations.studies.kg_mia import membership_study as membership
from fedkge.simulations.studies.leakage import leakage_over_epsilon
from fedkge.simulations.studies.private.federated_study import privacy_federated
from fedkge.simulations.studies.private.tuning_study import privacy_tuning
from fedkge.simulations.studies.private.utility_study import privacy_utility
from fedkge.simulations.studies.scale import Scale
from fedkge.simulations.studies.study import Recipe

__all__ = ["RECIPES", "Recipe", "Scale"]

RECIPES: dict[str, Recipe] = {
    "three-answers": three_answers,
    "fedr-table-2": fedr_tables.link_prediction,
    "fedr-table-5": fedr_tables.client_statistics,
    "fedr-table-7": fedr_tables.three_clients,
    "fedr-figure-2": fedr_figures.hit_rates,
    "fedr-figure-3": fedr_figures.rounds_to_target,
    "fedr-figure-4": fedr_figures.loss_curves,
    "fedr-noge-candidates": noge_candidates,
    "fedr-noge-graphs": noge_graphs,
    "fedr-fede-apart": fede_apart,
    "federation-gain": federation_gain,
    "fedr-reconstruction": reconstruction_tables,
    "leakage-over-epsilon": leakage_over_epsilon,
    "encoder-leakage": encoder_leakage,
    "dkrl-table-1": table_1,
    "dkrl-table-2": table_2,
    "blp": blp,
    "text-fusion": fusion,
    "text-bridge": bridge,
    "dpkge-epsilon": dpkge_epsilon.epsilon_tables,
    "dpkge-epsilon-epochs": dpkge_epsilon.epsilon_over_epochs,
    "dpkge-epsilon-share": dpkge_epsilon.epsilon_by_share,
    "dpkge-link-prediction": dpkge_utility.link_prediction,
    "dpkge-clip": dpkge_utility.clip_study,
    "dpkge-loss": dpkge_utility.loss_curves,
    "dpkge-share": dpkge_utility.share_sweep,
    "dpkge-clustering": clustering,
    "dpkge-attacker": attacker_ranks,
    "dpkge-neighbours": neighbouring_graphs,
    "dpkge-audit": privacy_audit,
    "dpkge-active-audit": active_audit,
    "dkrl-epsilon": epsilon_of_texts,
    "dkrl-audit": text_audit,
    "dkrl-private": private_texts,
    "dpne-table-1": dpne_tables.classification,
    "dpne-table-2": dpne_tables.classification_by_width,
    "dpne-table-3": dpne_tables.links,
    "dpne-table-4": dpne_tables.links_by_width,
    "dpne-audit": dpne_audit.edge_audit,
    "dpne-lemma-1": dpne_audit.lemma_1,
    "membership": membership.tables,
    "membership-exchanges": membership.exchanges,
    "membership-datasets": membership.cross_datasets,
    "membership-models": membership.cross_models,
    "privacy-utility": privacy_utility,
    "privacy-federated": privacy_federated,
    "privacy-tuning": privacy_tuning,
}
