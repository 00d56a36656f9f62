"""ADBench's character LSTM, whose weights are diagonal."""

import numpy as np

from wordings.plain import scan


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def advance(main, extra, state, x):
    """`state` is a list: h and c of each layer."""
    x = x * extra[0]
    after = []
    for layer in range(len(state) // 2):
        h, c = state[2 * layer], state[2 * layer + 1]
        gates = np.stack([x, h, x, h]) * main[2 * layer] + main[2 * layer + 1]
        c = c * sigmoid(gates[0]) + sigmoid(gates[1]) * np.tanh(gates[3])
        x = sigmoid(gates[2]) * np.tanh(c)
        after += [x, c]
    return after, x * extra[1] + extra[2]


def likelihood(guess, x):
    return np.sum(x * (guess - np.log(2.0 + np.sum(np.exp(guess)))))


def lstm_scan(main, extra, state, sequence):
    main = np.reshape(main, (len(main), 4, -1))

    def step(state, pair):
        state, guess = advance(main, extra, state, pair[0])
        return state, likelihood(guess, pair[1])

    start = [state[i] for i in range(len(state))]
    _, terms = scan(step, start, (sequence[:-1], sequence[1:]))
    return -np.sum(terms) / (len(terms) * sequence.shape[1])


def lstm_loop(main, extra, state, sequence):
    main = np.reshape(main, (len(main), 4, -1))
    state = [state[i] for i in range(len(state))]
    total = 0.0
    for t in range(len(sequence) - 1):
        state, guess = advance(main, extra, state, sequence[t])
        total = total + likelihood(guess, sequence[t + 1])
    return -total / ((len(sequence) - 1) * sequence.shape[1])
