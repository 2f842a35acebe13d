# The five common tasks. `just` lists them; each is one command, so `just` itself is optional.

[private]
default:
    @just --list

# Serves the demo at http://127.0.0.1:8080
run:
    cargo run --profile quick

# Runs all tests, or those that match FILTER
test *FILTER:
    cargo test --workspace {{ FILTER }}

# Checks formatting, lints and dependencies
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo deny check

# Runs everything that CI runs
ci:
    bash .ci/run

# Rewrites the generated pages, schemas and golden files
update:
    UPDATE=1 cargo test --test plain -- config:: reference:: old_keys:: stories::
    UPDATE=1 cargo test --test program -- permissions:: wrong_inputs:: reference::
