"""Stop-the-line checks of each training step, with a named cause and remedy."""

from drydock.training.diagnosis.diagnosis import Diagnosis, diagnosis_metrics
from drydock.training.diagnosis.facts import StepFacts
from drydock.training.diagnosis.finding import DiagnosisStop, StepFinding
from drydock.training.diagnosis.recall import recall

__all__ = ["Diagnosis", "DiagnosisStop", "StepFacts", "StepFinding", "diagnosis_metrics", "recall"]
