"""A platform plug-in: makes an engine choose its CPU platform, from sources without their compiled parts."""


def vllm() -> str:
    return "vllm.platforms.cpu.CpuPlatform"


def aphrodite() -> str:
    return "aphrodite.platforms.cpu.CpuPlatform"
