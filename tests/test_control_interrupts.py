"""Ctrl-C in loops of kernels."""

HEAD = """
import os, signal, threading, time
import numpy as np
import gradtape as gt
from gradtape.api.jit import jit
"""
