"""Quiver's measurement lab.

How the parts know each other, arrows pointing one way::

    units, trial ── measurer ── simulate        pure: no process, no clock, no file
          │             │
          │        search, procedures           pure: functions over a measurer
          │             │
    stats ┴─ published, findings                pure: data in, figures out
                        │
    records, store, campaign                    files, nothing else
                        │
    tester, testbed, devices, energy            the only modules that start processes or read the machine;
    commands, hosts, remote, fartester          of these, on other hosts
    site ── farsite                             where device and tester stand: here, or on two hosts
                        │
    runner ── spread ── worker ── cluster       one testbed, several, several in the hands of worker processes
       └───── report, compare ── cli
"""

__version__ = "0.1.0"
