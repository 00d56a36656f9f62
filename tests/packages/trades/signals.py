"""Signals, sound, colour and images."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "librosa 0.11.0",
        """
        import librosa
        y = np.sin(2 * np.pi * 440 * np.arange(2048) / 22050)
        """,
        ("librosa.hz_to_mel(p)", [60.0, 440.0, 2000.0]),
        ("librosa.mel_to_hz(p, htk=True)", [60.0, 440.0, 2000.0]),
        ("librosa.A_weighting(p)", [60.0, 440.0, 2000.0]),
        ("librosa.power_to_db(p, ref=1.0, top_db=None)", [0.1, 1.0, 20.0]),
        ("librosa.feature.rms(y=p, frame_length=32, hop_length=16)", "rng.normal(size=64)"),
        (
            "librosa.feature.spectral_centroid(S=p.reshape(9, 2), sr=22050, n_fft=16)",
            "rng.uniform(0.1, 1, size=18)",
        ),
        ("np.abs(librosa.stft(p, n_fft=32, hop_length=16))", "rng.normal(size=64)"),
    ),
    package(
        "colour-science 0.4.7",
        """
        import colour
        """,
        ("colour.sRGB_to_XYZ(p)", [0.4, 0.2, 0.7]),
        ("colour.XYZ_to_Lab(p)", [0.2, 0.12, 0.05]),
        ("colour.delta_E(p[:3], p[3:], method='CIE 2000')", [48.0, 39.0, 6.0, 51.0, 20.0, 10.0]),
        ("colour.XYZ_to_xy(p)", [0.2, 0.12, 0.05]),
        ("colour.temperature.CCT_to_xy_CIE_D(p)", [6504.0, 7000.0]),
        ("colour.models.RGB_to_HSV(p)", [0.4, 0.2, 0.7]),
    ),
    package(
        "antropy 0.2.3",
        """
        import antropy as ant
        """,
        ("ant.hjorth_params(p)", "rng.normal(size=40)"),
        ("ant.spectral_entropy(p, sf=100, method='fft')", "rng.normal(size=40)"),
        ("ant.svd_entropy(p, order=3, delay=1)", "rng.normal(size=40)"),
        ("ant.katz_fd(p)", "rng.normal(size=40)"),
        ("ant.higuchi_fd(p)", "rng.normal(size=40)"),
    ),
    package(
        "peakutils 1.3.5",
        """
        import peakutils
        x = np.linspace(0, 10, 30)
        """,
        (
            "peakutils.baseline(p, 2)",
            "0.3 * np.linspace(0, 10, 30) + np.exp(-(np.linspace(0, 10, 30) - 4) ** 2)",
        ),
        ("peakutils.centroid(x, p)", "rng.uniform(0.1, 1, size=30)"),
        ("peakutils.gaussian(x, p[0], p[1], p[2])", [2.0, 4.0, 1.2]),
        ("peakutils.prepare.scale(p, (0, 1))[0]", "rng.uniform(0.1, 1, size=30)"),
        ("peakutils.centroid2(p, x)", "rng.uniform(0.1, 1, size=30)"),
    ),
    package(
        "pybaselines 1.2.1",
        """
        from pybaselines import Baseline, utils
        x = np.linspace(0, 10, 30)
        fitter = Baseline(x_data=x)
        """,
        (
            "fitter.modpoly(p, poly_order=2, max_iter=3)[0]",
            "np.linspace(1, 3, 30) + np.exp(-(np.linspace(0, 10, 30) - 4) ** 2)",
        ),
        (
            "fitter.poly(p, poly_order=2)[0]",
            "np.linspace(1, 3, 30) + np.exp(-(np.linspace(0, 10, 30) - 4) ** 2)",
        ),
        (
            "fitter.asls(p, lam=1e3, max_iter=3)[0]",
            "np.linspace(1, 3, 30) + np.exp(-(np.linspace(0, 10, 30) - 4) ** 2)",
        ),
        ("utils.gaussian(x, p[0], p[1], p[2])", [2.0, 4.0, 1.2]),
        (
            "utils.whittaker_smooth(p, lam=10.0)",
            "np.linspace(1, 3, 30) + np.exp(-(np.linspace(0, 10, 30) - 4) ** 2)",
        ),
    ),
    package(
        "spectrum 0.10.0",
        """
        import spectrum
        from spectrum import linear_prediction, toeplitz
        """,
        ("spectrum.CORRELATION(p, maxlags=4)", "rng.normal(size=32)"),
        ("spectrum.LEVINSON(p)[0]", [1.0, 0.5, 0.1, -0.05]),
        ("spectrum.arburg(p, 3)[0]", "rng.normal(size=32)"),
        ("spectrum.aryule(p, 3)[0]", "rng.normal(size=32)"),
        ("linear_prediction.poly2ac(p, 0.5)", [1.0, 0.3, 0.1]),
    ),
    package(
        "scikit-rf 2.2.0",
        """
        import skrf as rf
        from skrf import mathFunctions, network, tlineFunctions
        f = np.array([1e9, 2e9, 5e9])
        """,
        ("np.abs(network.s2z(p.reshape(1, 2, 2)))", [0.1, 0.5, 0.4, -0.2]),
        ("mathFunctions.mag_2_db(p)", [0.1, 1.0, 20.0]),
        ("tlineFunctions.zl_2_Gamma0(p[0], p[1])", [50.0, 75.0]),
        ("tlineFunctions.skin_depth(p[0], p[1], p[2])", [1e9, 1.7e-8, 1.0]),
        (
            "network.connect_s(p[:4].reshape(1, 2, 2), 1, p[4:].reshape(1, 2, 2), 0)",
            [0.1, 0.5, 0.4, -0.2, 0.2, 0.6, 0.5, 0.1],
        ),
        ("np.abs(network.s2t(p.reshape(1, 2, 2)))", [0.1, 0.5, 0.4, -0.2]),
    ),
    package(
        "pyroomacoustics 0.10.1",
        """
        import pyroomacoustics as pra
        from pyroomacoustics import beamforming, experimental, transform
        """,
        ("pra.utilities.normalize(p)", "rng.normal(size=8)"),
        ("beamforming.circular_2D_array([p[0], p[1]], 4, 0.3, p[2])", [1.0, 2.0, 0.2]),
        ("beamforming.linear_2D_array([p[0], p[1]], 4, p[2], p[3])", [1.0, 2.0, 0.2, 0.1]),
        ("beamforming.distance(p.reshape(2, 3), np.eye(2))", [1.0, 0.5, 2.0, -1.0, 0.3, 0.7]),
        ("pra.utilities.dB(p, power=True)", [0.25, 0.5]),
    ),
    package(
        "neurokit2 0.3.0",
        """
        import neurokit2 as nk
        """,
        ("nk.standardize(p)", "rng.normal(size=20)"),
        ("nk.rescale(p, to=[0, 1])", "rng.normal(size=20)"),
        ("nk.signal_detrend(p, order=1)", "rng.normal(size=20)"),
        ("nk.mad(p)", "rng.normal(size=20)"),
        (
            "nk.signal_filter(p, sampling_rate=100, lowcut=2, highcut=20, method='butterworth', order=2)",
            "rng.normal(size=60)",
        ),
    ),
    package(
        "padasip 1.2.1",
        """
        import padasip as pa
        rng = np.random.default_rng(0)
        x = rng.normal(size=(20, 3))
        d = x @ np.array([0.3, -0.5, 1.2])
        """,
        (
            "pa.filters.FilterLMS(n=3, mu=0.1, w=np.array([0.1, 0.2, 0.3])).run(p, x)[0]",
            "rng.normal(size=20)",
        ),
        (
            "pa.filters.FilterRLS(n=3, mu=0.99, w=np.array([0.1, 0.2, 0.3])).run(p, x)[0]",
            "rng.normal(size=20)",
        ),
        ("pa.preprocess.standardize(p)", "rng.normal(size=20)"),
        ("pa.misc.MSE(p, d)", "rng.normal(size=20)"),
        ("pa.preprocess.input_from_history(p, 3)", "rng.normal(size=20)"),
    ),
    package(
        "heartpy 1.2.7",
        """
        from heartpy import analysis, datautils, filtering
        """,
        ("datautils.rolling_mean(p, windowsize=0.05, sample_rate=100.0)", "rng.normal(size=40)"),
        (
            "filtering.filter_signal(p, cutoff=5, sample_rate=100.0, order=3, filtertype='lowpass')",
            "rng.normal(size=40)",
        ),
        (
            "analysis.calc_ts_measures(p, np.abs(np.diff(p)), np.diff(p) ** 2)[1]['rmssd']",
            [800.0, 820.0, 790.0, 845.0],
        ),
        ("datautils.MAD(p)", [800.0, 820.0, 790.0, 845.0, 801.0]),
        ("filtering.hampel_filter(p, filtsize=6)", "rng.normal(size=20)"),
    ),
    package(
        "nengo 4.1.0",
        """
        import nengo
        from nengo.utils.numpy import rms
        J = np.array([0.5, 1.5, 3.0])
        """,
        ("nengo.LIFRate().rates(p, gain=np.ones(3), bias=np.zeros(3))", [1.5, 2.0, 3.5]),
        ("nengo.Sigmoid().rates(p, gain=np.ones(3), bias=np.zeros(3))", [0.5, 2.0, 3.5]),
        ("nengo.Lowpass(0.1).evaluate(p)", [0.5, 2.0, 3.5]),
        ("rms(p)", [0.5, 2.0, 3.5]),
        ("nengo.Alpha(0.1).evaluate(p)", [0.5, 2.0, 3.5]),
    ),
    package(
        "pyloudnorm 0.2.0",
        """
        import pyloudnorm as pyln
        meter = pyln.Meter(8000, block_size=0.1)
        sound = np.sin(np.linspace(0.0, 300.0, 1600)) * np.linspace(0.2, 0.9, 1600)
        """,
        ("meter.integrated_loudness(p)", "0.3 * rng.normal(size=1600)"),
        ("pyln.normalize.peak(p, -1.0)", [0.1, -0.4, 0.3]),
        ("pyln.normalize.loudness(p, meter.integrated_loudness(sound), -12.0)", [0.1, -0.4, 0.3]),
        ("pyln.IIRfilter(p[0], 1 / np.sqrt(2), p[1], 48000, 'high_shelf').a", [4.0, 1500.0]),
        ("pyln.IIRfilter(0.0, 0.5, p[0], 8000, 'high_pass').apply_filter(sound[:50])", [38.0]),
    ),
    package(
        "python_speech_features 0.6",
        """
        from python_speech_features import base, delta, logfbank, mfcc, sigproc, ssc
        """,
        ("mfcc(p, 8000, nfft=256)", "rng.normal(size=600)"),
        ("logfbank(p, 8000, nfft=256)", "rng.normal(size=600)"),
        ("delta(p.reshape(6, 2), 2)", "rng.normal(size=12)"),
        ("ssc(p, 8000, nfft=256)", "rng.normal(size=600)"),
        ("sigproc.preemphasis(p, 0.97)", "rng.normal(size=20)"),
    ),
    package(
        "scikit-image 0.26.0",
        """
        from skimage import color, filters, metrics, restoration
        image = np.random.default_rng(3).uniform(size=(8, 8))
        """,
        ("color.rgb2lab(p.reshape(1, 2, 3))", "rng.uniform(0.1, 0.9, size=6)"),
        ("filters.gaussian(p.reshape(6, 6), sigma=1)", "rng.uniform(size=36)"),
        ("filters.sobel(p.reshape(6, 6))", "rng.uniform(size=36)"),
        ("metrics.structural_similarity(p.reshape(8, 8), image, data_range=1.0)", "rng.uniform(size=64)"),
        ("restoration.denoise_tv_chambolle(p.reshape(6, 6), weight=0.1)", "rng.uniform(size=36)"),
    ),
    package(
        "tsfresh 0.21.2",
        """
        from tsfresh.feature_extraction import feature_calculators as features
        """,
        ("features.abs_energy(p)", "rng.normal(size=20)"),
        ("features.cid_ce(p, normalize=True)", "rng.normal(size=20)"),
        ("features.c3(p, 2)", "rng.normal(size=20)"),
        ("features.autocorrelation(p, 2)", "rng.normal(size=20)"),
        ("features.linear_trend(p, [dict(attr='slope'), dict(attr='stderr')])[0][1]", "rng.normal(size=20)"),
    ),
    package(
        "stumpy 1.14.1",
        """
        import stumpy
        series = np.cumsum(np.random.default_rng(3).normal(size=24))
        """,
        ("stumpy.mass(p, series)", "rng.normal(size=6)"),
        ("stumpy.core.z_norm(p)", "rng.normal(size=12)"),
        ("stumpy.core.mass_absolute(p, series)", "rng.normal(size=6)"),
        ("stumpy.core.rolling_nanmin(p, 4)", "rng.normal(size=16)"),
        ("stumpy.core.rolling_nanstd(p, 4)", "rng.normal(size=16)"),
    ),
    package(
        "mir_eval 0.8.2",
        """
        import mir_eval
        sources = np.random.default_rng(2).normal(size=(1, 600))
        """,
        ("mir_eval.util.hz_to_midi(p)", [440.0, 261.6, 880.0]),
        ("mir_eval.beat.cemgil(np.array([1.0, 2.0, 3.0, 4.0]), p)[0]", [1.01, 1.97, 3.02, 4.01]),
        ("mir_eval.alignment.absolute_error(np.array([1.0, 2.0, 3.0]), p)", [1.1, 1.95, 3.3]),
        ("mir_eval.melody.hz2cents(p)", [440.0, 261.6, 880.0]),
        (
            "mir_eval.separation.bss_eval_sources(sources, p.reshape(1, 600), compute_permutation=False)[0]",
            "np.random.default_rng(2).normal(size=600) + 0.3 * rng.normal(size=600)",
        ),
    ),
    package(
        "vmdpy 0.2",
        """
        from vmdpy import VMD
        t = np.linspace(0, 1, 40, endpoint=False)
        """,
        (
            "VMD(p, 100.0, 0.0, 2, 0, 1, 1e-3)[0]",
            "np.cos(2 * np.pi * 3 * np.linspace(0, 1, 40)) + 0.3 * rng.normal(size=40)",
        ),
        (
            "VMD(p, 50.0, 0.1, 2, 0, 1, 1e-2)[2][-1]",
            "np.cos(2 * np.pi * 3 * np.linspace(0, 1, 40)) + 0.3 * rng.normal(size=40)",
        ),
        ("VMD(np.cos(12 * t) + np.cos(50 * t), p[0], 0.0, 2, 0, 1, 1e-2)[0]", [100.0]),
        (
            "np.abs(VMD(p, 100.0, 0.0, 1, 0, 0, 1e-2)[1])",
            "np.cos(2 * np.pi * 3 * np.linspace(0, 1, 40)) + 0.3 * rng.normal(size=40)",
        ),
        (
            "VMD(p, 100.0, 0.0, 2, 1, 1, 1e-2)[0]",
            "np.cos(2 * np.pi * 3 * np.linspace(0, 1, 40)) + 0.3 * rng.normal(size=40)",
        ),
    ),
    package(
        "pystoi 0.4.1",
        """
        from pystoi import stoi
        from pystoi.utils import stft, thirdoct
        clean = np.random.default_rng(3).normal(size=6000)
        """,
        ("stoi(clean, p, 10000)", "np.random.default_rng(3).normal(size=6000) + 0.5 * rng.normal(size=6000)"),
        (
            "stoi(clean, p, 10000, extended=True)",
            "np.random.default_rng(3).normal(size=6000) + 0.5 * rng.normal(size=6000)",
        ),
        ("stoi(p[:1] * clean, clean + p[1] * np.cos(np.arange(6000.0)), 10000)", [1.0, 0.5]),
        ("np.abs(stft(p, 64, 128))", "rng.normal(size=400)"),
        ("thirdoct(10000, 512, 15, 150)[0] @ p", "rng.normal(size=257)"),
    ),
    package(
        "colorspacious 1.1.2",
        """
        from colorspacious import cspace_convert, deltaE
        """,
        ("cspace_convert(p, 'sRGB1', 'CIELab')", [0.2, 0.6, 0.4]),
        ("cspace_convert(p, 'sRGB255', 'XYZ100')", [64.0, 128.0, 200.0]),
        ("cspace_convert(p, 'sRGB1', 'CAM02-UCS')", [0.2, 0.6, 0.4]),
        ("deltaE(p[:3], p[3:])", [0.2, 0.6, 0.4, 0.3, 0.5, 0.5]),
        ("cspace_convert(p, 'XYZ100', 'JCh')", [20.0, 30.0, 25.0]),
    ),
]
