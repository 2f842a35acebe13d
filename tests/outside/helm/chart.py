"""Lints, renders and validates the chart with Helm's own library; the answer is one JSON object on standard output.

    chart.py CHART < {"values": {...}, "namespace": ..., "server": null}

With a server, `lookup` asks it, as in an upgrade. With "objects" in the place of values, those are validated alone.
"""

import json
import sys

import kubernetes_validate
import yaml
from helm_python import Chart, Config
from helm_python.chart import lint

# The oldest that the chart admits and the newest that is published, of those in the package.
VERSIONS = ["1.27", "1.33", "1.37"]

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: double, cluster: {server: SERVER}}]
users: [{name: double, user: {}}]
contexts: [{name: double, context: {cluster: double, user: double}}]
current-context: double
"""


def wrong(objects: list) -> list:
    found = []
    for thing in objects:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(thing, version, strict=True)
            except Exception as error:
                name = thing["metadata"].get("name", "")
                found.append(f"{thing['kind']} {name} in {version}: {error}")
    return found


def main() -> None:
    request = json.load(sys.stdin)
    if "objects" in request:
        print(json.dumps({"wrong": wrong(request["objects"])}))
        return
    path, values = sys.argv[1], request["values"]
    answer = {"lint": [], "objects": [], "wrong": [], "notes": "", "configuration": {}, "error": None}
    try:
        report = lint(path, values, strict=True, kube_version="v1.33.0")
        # Information, such as that an icon is recommended, has severity 1.
        answer["lint"] = [it["error"] for it in report["messages"] if it["severity"] > 1]
        answer["lint"] += report["errors"]
        options = {"name": "pool", "namespace": request["namespace"]}
        with Chart.load(path) as chart:
            if request.get("server"):
                content = KUBECONFIG.replace("SERVER", request["server"])
                config = Config(kubeconfig_content=content, namespace=request["namespace"])
                files = config.render(chart, values, is_upgrade=True, **options)
            else:
                files = chart.render(values, **options)
    except Exception as error:
        answer["error"] = str(error)
        print(json.dumps(answer))
        return
    for name, text in sorted(files.items()):
        if name.endswith("NOTES.txt"):
            answer["notes"] = text
            continue
        for thing in yaml.safe_load_all(text):
            if thing:
                answer["objects"].append(thing)
            if thing and thing["kind"] == "ConfigMap":
                for file, content in thing.get("data", {}).items():
                    answer["configuration"][file] = yaml.safe_load(content)
    # The schema of a ServiceMonitor belongs to Prometheus' operator.
    objects = [it for it in answer["objects"] if it["kind"] != "ServiceMonitor"]
    answer["wrong"] = wrong(objects)
    print(json.dumps(answer))


main()
