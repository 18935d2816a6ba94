#!/usr/bin/python3
"""Brings a Quiver router to a wanted configuration by `quiverctl apply`."""

import json

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: quiver_config
short_description: Brings a Quiver router to a wanted configuration
description:
  - Runs C(quiverctl apply), which changes only what differs, all of it or nothing, while packets flow.
  - In check mode nothing is changed; the task says what would be.
options:
  config:
    description: The wanted configuration, see docs/apply.md.
    type: dict
    required: true
  own:
    description: Parts that it owns, such as C(interfaces/loop0); what is not owned is left alone. All where none is given.
    type: list
    elements: str
    default: []
  confirmed:
    description: The changes are undone unless C(confirm) follows within this time, such as C(5m).
    type: str
  comment:
    description: What the router remembers of the change.
    type: str
  socket:
    description: Socket of the router; found by quiverctl where absent.
    type: str
  quiverctl:
    description: The program.
    type: str
    default: quiverctl
"""

EXAMPLES = r"""
- name: The uplink
  quiver_config:
    own: [interfaces/host-eth1, routes]
    config:
      interfaces:
        host-eth1: {host_interface: {}, addresses: [192.0.2.1/24], up: true}
      routes:
        0: {0.0.0.0/0: [{next_hop: 192.0.2.254}]}
"""

RETURN = r"""
changes:
  description: What was changed, or would be; at most 1000 entries.
  returned: success
  type: list
"""


def shown(change, key):
    """One line of the difference that Ansible prints."""
    value = change.get(key)
    return f"{change['path']}: {value if isinstance(value, str) else json.dumps(value, sort_keys=True)}\n"


def difference(changes):
    """The lines before and after."""
    before, after = "", ""
    for change in changes:
        if change["action"] == "remove":
            before += shown(change, "value")
        elif change["action"] == "change":
            before += shown(change, "before")
            after += shown(change, "value")
        elif change["action"] == "add":
            after += shown(change, "value")
    return {"before": before, "after": after}


def main():
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "dict", "required": True},
            "own": {"type": "list", "elements": "str", "default": []},
            "confirmed": {"type": "str"},
            "comment": {"type": "str"},
            "socket": {"type": "str"},
            "quiverctl": {"type": "str", "default": "quiverctl"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    command = [wanted["quiverctl"]]
    if wanted["socket"]:
        command += ["--socket", wanted["socket"]]
    command += ["apply", "-", "--json"]
    for part in wanted["own"]:
        command += ["--own", part]
    for option in ("confirmed", "comment"):
        if wanted[option]:
            command += [f"--{option}", wanted[option]]
    if module.check_mode:
        command.append("--plan")
    # JSON is YAML.
    code, out, err = module.run_command(command, data=json.dumps(wanted["config"]))
    # A plan that has changes ends with 2.
    if code not in (0, 2 if module.check_mode else 0):
        module.fail_json(msg=err.strip() or f"quiverctl ended with {code}")
    answer = json.loads(out)
    changed = any(answer[key] for key in ("added", "removed", "changed", "again"))
    module.exit_json(changed=changed, changes=answer["changes"], diff=difference(answer["changes"]))


if __name__ == "__main__":
    main()
