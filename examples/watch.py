"""Print what a running agent sees: python examples/watch.py (start one with `vramscope agent`)."""

import sys

import vramscope


def main() -> int:
    """Print one line a device and tick until the agent ends; return an exit code."""
    try:
        with vramscope.connect() as agent:
            for sample in agent.samples():
                for device in sample.devices:
                    used_bytes = device.memory.used_bytes
                    # None is what nobody measured; it is not 0.
                    used = "—" if used_bytes is None else f"{used_bytes / 2**30:.1f} GiB"
                    print(f"{sample.node}  {device.label:>4}  {device.name}  {used}", flush=True)
    except vramscope.VramscopeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
