"""What `import advisor` offers, for type checkers; `__init__.py` imports it when it is wanted."""

from advisor.core.gpu import Gpu as Gpu, Share as Share
from advisor.core.job import Job as Job
from advisor.core.records import (
    Counters as Counters,
    PairPoint as PairPoint,
    SoloPoint as SoloPoint,
)
from advisor.errors import AdvisorError as AdvisorError
from advisor_advice.ask import recommend as recommend, replicas as replicas
from advisor_advice.placing import place as place
from advisor_cli.measure.profile import profile as profile
from advisor_training.learners import PriorRegressor as PriorRegressor
from advisor_training.rows import load_dataset as load_dataset
from advisor_training.train import training_data as training_data

__version__: str
