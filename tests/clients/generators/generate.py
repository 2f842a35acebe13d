"""Makes clients from openapi.json with five generators, compiles them and calls the pool with each: chat, embeddings, models.

generate.py GENERATORS runs in an empty folder with openapi.json. GENERATORS: the folder that .ci/generators filled.
"""

import os
import pathlib
import shutil
import subprocess
import sys

GENERATORS = pathlib.Path(sys.argv[1])
OWN = pathlib.Path(__file__).parent
BIN = GENERATORS / "venv/bin"
NODE = GENERATORS / "node_modules/.bin"


def run(*words, quiet=True):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0 or not quiet:
        print(done.stdout)
    assert done.returncode == 0, f"{words}: {done.returncode}"
    return done.stdout


def openapi_generator(kind, folder, *more):
    run(BIN / "openapi-generator-cli", "generate", "-i", "openapi.json", "-g", kind, "-o", folder, *more)


openapi_generator("python", "python")
run(BIN / "python", OWN / "calls_openapi_generator.py", "python", quiet=False)

config = "project_name_override: model-pool-client\npackage_name_override: model_pool_client\npost_hooks: []\n"
pathlib.Path("config.yaml").write_text(config)
said = run(BIN / "openapi-python-client", "generate", "--path", "openapi.json", "--output-path", "opc", "--config", "config.yaml")
# It leaves out what it cannot read, and says so.
for trouble in ("Endpoint will not be generated", "Unable to process schema"):
    assert trouble not in said, said
run(BIN / "python", OWN / "calls_openapi_python_client.py", "opc", quiet=False)

openapi_generator("typescript-fetch", "typescript-fetch")
run(NODE / "openapi-ts", "-i", "openapi.json", "-o", "hey-api", "-c", "@hey-api/client-fetch")
run(NODE / "openapi-typescript", "openapi.json", "-o", "openapi-typescript.d.ts")
os.symlink(GENERATORS / "node_modules", "node_modules")
for file in OWN.glob("calls_*.ts"):
    shutil.copy(file, file.name)
shutil.copy(OWN / "tsconfig.json", "tsconfig.json")
run(NODE / "tsc", "-p", "tsconfig.json")
for name in ("typescript_fetch", "hey_api", "openapi_typescript"):
    run("node", f"built/calls_{name}.js", quiet=False)
print("5 passed, 0 failed")
