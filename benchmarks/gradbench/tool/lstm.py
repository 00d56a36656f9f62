"""The loss of a network of LSTM layers with diagonal weights on a sequence of characters."""

import numpy as np
from gradbench import wrap

import gradtape as gt


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def loss(main, extra, state, sequence):
    hidden_size = sequence.shape[1]
    layers = len(main) // 2
    weights = main.reshape(layers, 2, 4, hidden_size)
    hidden = state[0::2].copy()
    cells = state[1::2].copy()
    total = 0.0
    for t in range(len(sequence) - 1):
        x = sequence[t] * extra[0]
        for layer in range(layers):
            weight, bias = weights[layer]
            forget = sigmoid(x * weight[0] + bias[0])
            ingate = sigmoid(hidden[layer] * weight[1] + bias[1])
            outgate = sigmoid(x * weight[2] + bias[2])
            change = np.tanh(hidden[layer] * weight[3] + bias[3])
            cells[layer] = cells[layer] * forget + ingate * change
            x = outgate * np.tanh(cells[layer])
            hidden[layer] = x
        predicted = x * extra[1] + extra[2]
        total += np.sum(sequence[t + 1] * (predicted - np.log(2.0 + np.sum(np.exp(predicted)))))
    return -total / (hidden_size * (len(sequence) - 1))


value = gt.jit(loss)
derivative = gt.grad(loss, argnums=(0, 1))


def arguments(message):
    return tuple(np.array(message[name]) for name in ("main_params", "extra_params", "state", "sequence"))


def flat(gradients):
    return np.concatenate([part.ravel() for part in gradients]).tolist()


@wrap.multiple_runs(pre=arguments, post=float)
def objective(arguments):
    return value(*arguments)


@wrap.multiple_runs(pre=arguments, post=flat)
def jacobian(arguments):
    return derivative(*arguments)
