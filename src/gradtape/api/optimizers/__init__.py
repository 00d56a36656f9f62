"""Optimisers, schedules of learning rates, and clipping of gradients."""

from gradtape.api.optimizers.clipping import clip_by_global_norm as clip_by_global_norm
from gradtape.api.optimizers.clipping import global_norm as global_norm
from gradtape.api.optimizers.methods import SGD as SGD
from gradtape.api.optimizers.methods import Adam as Adam
from gradtape.api.optimizers.methods import GradientDescent as GradientDescent
from gradtape.api.optimizers.methods import Momentum as Momentum
from gradtape.api.optimizers.methods import RMSprop as RMSprop
from gradtape.api.optimizers.optimizer import Optimizer as Optimizer
from gradtape.api.optimizers.schedules import cosine_decay as cosine_decay
from gradtape.api.optimizers.schedules import exponential_decay as exponential_decay
from gradtape.api.optimizers.schedules import piecewise_constant as piecewise_constant
from gradtape.api.optimizers.schedules import warmup as warmup
from gradtape.habits import OPTIMIZERS as _HABITS
from gradtape.habits import answering as _answering

__getattr__, __dir__ = _answering("gradtape.optimizers", globals(), _HABITS)
