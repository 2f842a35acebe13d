//! Memory of llama-server by place, for the headers of published models. Each file of `tests/fixtures/llama_headers` describes a
//! header: the values and tensor shapes of a published model, its source, and the memory in MiB (weights, cache, compute buffer)
//! that `llama-fit-params --fit-print on` of llama.cpp 0c1e570 (llama-cpp-python 0.3.36) prints for the same header, or for a
//! similar header named in the file. Its devices are RPC servers, which do not compute batches with weights of the host; the options
//! here say the same with `--no-op-offload`.
//! One file because every test reads the same headers.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use model_pool::catalog::{DeviceSize, Entry, GPU_OVERHEAD, LLAMA_CPU_OVERHEAD, MemorySplit};
use model_pool::config::Config;
use model_pool::pool::Bytes;
use serde_json::{Value, json};

use super::assert_has;
use super::commands::entry;
use super::gguf::File;

const MIB: u64 = Bytes::MIB;

/// A described header, and its file without tensor data.
struct Header {
    name: String,
    description: Value,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

/// Number, elements and bytes of a block.
fn format(name: &str) -> (u32, u64, u64) {
    match name {
        "F32" => (0, 1, 4),
        "F16" => (1, 1, 2),
        "Q4_0" => (2, 32, 18),
        "Q5_0" => (6, 32, 22),
        "Q8_0" => (8, 32, 34),
        "Q4_K" => (12, 256, 144),
        "Q6_K" => (14, 256, 210),
        "BF16" => (30, 1, 2),
        "MXFP4" => (39, 32, 17),
        "NVFP4" => (40, 64, 36),
        other => panic!("{other}"),
    }
}

fn integers(list: &Value) -> Vec<u64> {
    let list = list.as_array().unwrap();
    list.iter().map(|value| value.as_u64().unwrap()).collect()
}

impl Header {
    fn read(path: &Path) -> Header {
        let text = std::fs::read_to_string(path).unwrap();
        let description: Value = serde_json::from_str(&text).unwrap();
        let mut file = File::default();
        for (key, value) in description["values"].as_object().unwrap() {
            file = match value {
                Value::String(word) => file.word(key, word),
                Value::Bool(_) => file.number(key, 1),
                Value::Array(_) => {
                    let list: Vec<u32> = integers(value)
                        .into_iter()
                        .map(|value| value as u32)
                        .collect();
                    file.list(key, &list)
                }
                number => match number.as_u64() {
                    Some(number) => file.number(key, number as u32),
                    None => file.fraction(key, number.as_f64().unwrap() as f32),
                },
            };
        }
        for tensor in description["tensors"].as_array().unwrap() {
            let (name, shape) = (tensor[0].as_str().unwrap(), integers(&tensor[1]));
            let (number, elements, bytes) = format(tensor[2].as_str().unwrap());
            let bytes = shape.iter().product::<u64>() / elements * bytes;
            let Some(runs) = tensor[3].as_array() else {
                file = file.tensor(name, &shape, number, bytes);
                continue;
            };
            for run in runs {
                let run = integers(run);
                for layer in run[0]..run[1] {
                    let name = name.replace("{}", &layer.to_string());
                    file = file.tensor(&name, &shape, number, bytes);
                }
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.gguf");
        file.write_sparse(&model);
        Header {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            description,
            path: model,
            _folder: folder,
        }
    }

    fn all() -> Vec<Header> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir("tests/fixtures/llama_headers")
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        paths.sort();
        assert!(paths.len() >= 12, "only {} headers", paths.len());
        paths.iter().map(|path| Header::read(path)).collect()
    }

    fn named(name: &str) -> Header {
        Header::read(Path::new(&format!(
            "tests/fixtures/llama_headers/{name}.json"
        )))
    }

    fn entry(&self, options: &str, more: Value) -> Entry {
        let mut command = vec![
            "llama-server",
            "--port",
            "{{ port }}",
            "-m",
            "{{ model_path }}",
        ];
        command.extend(options.split_whitespace());
        entry(&self.path.display().to_string(), &command, more)
    }

    /// The memory by place with these options.
    fn split(&self, options: &str, devices: u64) -> MemorySplit {
        let pool = json!({"pool_config": {"gpus_per_replica": devices}});
        self.entry(options, pool)
            .memory_split(None)
            .expect("a split")
    }

    /// The memory by place with these variables.
    fn split_by(&self, variables: &[(&str, &str)]) -> MemorySplit {
        let env: Value = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let more = json!({"engine_config": {"env": env}});
        self.entry("", more).memory_split(None).expect("a split")
    }
}

fn is_within(got: u64, known: u64, per_mille: u64, at_least: u64) -> bool {
    let tolerance = (known.saturating_mul(per_mille) / 1000).max(at_least);
    got.abs_diff(known) <= tolerance
}

#[test]
fn weights_cache_and_buffers_are_where_llama_cpp_puts_them() {
    let mut far = Vec::new();
    let mut seen = 0;
    for header in Header::all() {
        for run in header.description["llama_cpp"].as_array().unwrap() {
            let options = run["options"].as_str().unwrap();
            let devices = run["devices"].as_u64().unwrap();
            let split = header.split(&format!("{options} --no-op-offload"), devices);
            let sum = |figures: &Value| integers(figures).into_iter().sum::<u64>() * MIB;
            let known: Vec<u64> = run["gpus_mib"]
                .as_array()
                .unwrap()
                .iter()
                .map(sum)
                .collect();
            let got: Vec<u64> = split
                .gpus
                .iter()
                .map(|bytes| bytes.0 - GPU_OVERHEAD.0)
                .collect();
            let host = split.host.0 - LLAMA_CPU_OVERHEAD.0;
            let mut pairs: Vec<(u64, u64)> = got.into_iter().zip(known).collect();
            pairs.push((host, sum(&run["host_mib"])));
            for (place, (got, known)) in pairs.into_iter().enumerate() {
                seen += 1;
                println!(
                    "{} {devices} {options} {place}: {} MiB of {} MiB",
                    header.name,
                    got / MIB,
                    known / MIB
                );
                // Five per cent, or 96 MiB where there is little.
                if !is_within(got, known, 50, 96 * MIB) {
                    far.push(format!(
                        "{} {options} place {place}: {} MiB, llama.cpp needs {} MiB",
                        header.name,
                        got / MIB,
                        known / MIB
                    ));
                }
            }
        }
    }
    assert!(far.is_empty(), "of {seen} figures:\n{}", far.join("\n"));
    assert!(seen > 80, "{seen}");
}

#[test]
fn headers_have_the_sizes_of_the_published_files() {
    let mut seen = 0;
    for header in Header::all() {
        let Some(published) = header.description["published_bytes"].as_u64() else {
            continue;
        };
        seen += 1;
        let bytes = std::fs::metadata(&header.path).unwrap().len();
        assert!(
            is_within(bytes, published, 5, 0),
            "{}: {bytes}, published are {published}",
            header.name
        );
    }
    assert!(seen >= 11, "{seen}");
}

#[test]
fn headers_have_the_parameters_of_the_published_models() {
    let mut seen = 0;
    for header in Header::all() {
        let Some(published) = header.description["published_parameters"].as_u64() else {
            continue;
        };
        seen += 1;
        let tensors = header.description["tensors"].as_array().unwrap();
        let count = |tensor: &Value| {
            let elements: u64 = integers(&tensor[1]).into_iter().product();
            let layers = tensor[3].as_array().map_or(1, |runs| {
                let run = |run: &Value| run[1].as_u64().unwrap() - run[0].as_u64().unwrap();
                runs.iter().map(run).sum()
            });
            elements * layers
        };
        let parameters: u64 = tensors.iter().map(count).sum();
        assert!(
            is_within(parameters, published, 5, 0),
            "{}: {parameters}, published are {published}",
            header.name
        );
    }
    assert!(seen >= 3, "{seen}");
}

#[test]
fn every_header_is_confirmed_by_a_published_figure() {
    for header in Header::all() {
        let keys = ["published_bytes", "published_log", "published_parameters"];
        let is_confirmed = keys.iter().any(|key| !header.description[key].is_null());
        assert!(is_confirmed, "{} has none of {keys:?}", header.name);
    }
}

#[test]
fn a_published_log_with_cuda_has_the_same_weights_by_place() {
    let header = Header::named("qwen3-30b-a3b-q4_k_m");
    let log = &header.description["published_log"];
    // The cache of 4096 tokens and its mask are small.
    let split = header.split(log["options"].as_str().unwrap(), 1);
    let without = header.split("-c 4096 -np 1 -ngl 30 --no-kv-offload --no-op-offload", 1);
    let of_log = |key: &str| (log[key].as_f64().unwrap() * MIB as f64) as u64;
    let on_gpu = without.gpus[0].0 - GPU_OVERHEAD.0;
    assert!(
        is_within(on_gpu, of_log("gpu_model_mib"), 50, 0),
        "{without}"
    );
    let on_host = split.host.0 - LLAMA_CPU_OVERHEAD.0;
    assert!(
        is_within(on_host, of_log("host_model_mib"), 50, 0),
        "{split}"
    );
}

#[test]
fn experts_of_the_host_are_copied_to_the_gpu_one_matrix_at_a_time() {
    let header = Header::named("gpt-oss-120b-mxfp4");
    let with = header.split("-c 32768 -np 1 --cpu-moe", 1);
    let without = header.split("-c 32768 -np 1 --cpu-moe --no-op-offload", 1);
    let matrix = 2880 * 2880 * 128 / 32 * 17;
    assert_eq!(with.gpus[0].0 - without.gpus[0].0, matrix);
    assert_eq!(with.host, without.host);
    let display = with.to_string();
    assert_has(
        &display,
        &["GiB on the GPU, ", "GiB on the host: --cpu-moe"],
    );
}

#[test]
fn every_spelling_and_variable_of_an_option_has_the_same_effect() {
    let header = Header::named("qwen3-30b-a3b-q4_k_m");
    let same = |spellings: &[&str], variables: &[(&str, &str)]| {
        let first = header.split(spellings[0], 1);
        let places = |split: &MemorySplit| (split.gpus.clone(), split.host);
        for spelling in spellings {
            assert_eq!(
                places(&header.split(spelling, 1)),
                places(&first),
                "{spelling}"
            );
        }
        assert_eq!(
            places(&header.split_by(variables)),
            places(&first),
            "{variables:?}"
        );
        assert_ne!(
            places(&header.split("", 1)),
            places(&first),
            "{}",
            spellings[0]
        );
    };
    same(
        &[
            "-ngl 20",
            "--gpu-layers 20",
            "--n-gpu-layers 20",
            "--n_gpu_layers 20",
        ],
        &[("LLAMA_ARG_N_GPU_LAYERS", "20")],
    );
    same(
        &["-cmoe", "--cpu-moe", "-ncmoe 48", "-ot exps=CPU"],
        &[("LLAMA_ARG_CPU_MOE", "1")],
    );
    same(
        &[
            "-ncmoe 20",
            "--n-cpu-moe 20",
            r"-ot blk\.(1?[0-9])\.ffn_.*_exps=CPU",
        ],
        &[("LLAMA_ARG_N_CPU_MOE", "20")],
    );
    same(
        &[
            "--override-tensor ffn_up_exps=CPU,ffn_gate_exps=CPU",
            "-ot ffn_up_exps=CPU -ot ffn_gate_exps=CPU",
        ],
        &[("LLAMA_ARG_OVERRIDE_TENSOR", "ffn_(up|gate)_exps=CPU")],
    );
    same(
        &["-nkvo", "--no-kv-offload", "-kvo -nkvo"],
        &[("LLAMA_ARG_KV_OFFLOAD", "off")],
    );
    same(
        &["-dev none", "--device none"],
        &[("LLAMA_ARG_DEVICE", "none")],
    );
    let dense = Header::named("llama-3.1-8b-q4_k_m");
    let by_variable = dense.split_by(&[("LLAMA_ARG_N_CPU_FFN", "12")]);
    assert_eq!(by_variable, dense.split("--n-cpu-ffn 12", 1));
}

#[test]
fn weights_of_the_host_are_mapped_unless_an_option_reads_or_locks_them() {
    let header = Header::named("gpt-oss-120b-mxfp4");
    let options = "-c 8192 -np 1 --cpu-moe";
    let mapped = |more: &str| header.split(&format!("{options} {more}"), 1);
    let split = mapped("");
    // All but the cache, the buffers and the engine's own memory.
    assert!(split.mapped > Bytes(50 << 30), "{split}");
    let rest = split.host.saturating_sub(split.mapped);
    assert!(rest > LLAMA_CPU_OVERHEAD && rest < Bytes(1 << 30), "{rest}");
    for same in [
        "--load-mode mmap",
        "--load-mode auto",
        "-lm mmap",
        "-lm=auto",
        "--mmap",
        "--no-mmap --mmap",
    ] {
        assert_eq!(mapped(same), split, "{same}");
    }
    for held in [
        "--load-mode none",
        "-lm mlock",
        "--load-mode=mmap+mlock",
        "-lm dio",
        "--no-mmap",
        "--mlock",
        "--direct-io",
        "-dio",
        "--use_mmap false",
        "--use_mlock True",
    ] {
        let split_held = mapped(held);
        assert_eq!(split_held.mapped, Bytes::ZERO, "{held}");
        assert_eq!(split_held.host, split.host, "{held}");
    }
    for variable in [
        ("LLAMA_ARG_LOAD_MODE", "none"),
        ("LLAMA_ARG_NO_MMAP", "1"),
        ("LLAMA_ARG_MMAP", "off"),
        ("LLAMA_ARG_MLOCK", "1"),
        ("LLAMA_ARG_DIO", "1"),
    ] {
        let by_variable = header.split_by(&[("LLAMA_ARG_CPU_MOE", "1"), variable]);
        assert_eq!(by_variable.mapped, Bytes::ZERO, "{variable:?}");
    }
    // Without a GPU the weights are copied into another layout.
    assert_eq!(mapped("--device none").mapped, Bytes::ZERO);
}

#[test]
fn the_first_pattern_that_matches_decides() {
    let header = Header::named("qwen3-30b-a3b-q4_k_m");
    let all_on_gpu = header.split("-c 4096", 1);
    let first = header.split("-c 4096 -ot exps=CUDA0 --cpu-moe", 1);
    assert_eq!(first.gpus, all_on_gpu.gpus);
    let second = header.split("-c 4096 --cpu-moe -ot exps=CUDA0", 1);
    assert!(second.host.0 > 15 << 30, "{second}");
    // A pattern may move a layer of the host to a GPU.
    let back = header.split("-c 4096 -ngl 0 -ot exps=CUDA0", 1);
    assert!(back.gpus[0].0 > 15 << 30, "{back}");
}

#[test]
fn a_pattern_that_cannot_be_evaluated_counts_on_both_sides_and_none_takes_long() {
    let header = Header::named("qwen3-30b-a3b-q4_k_m");
    let options = |pattern: &str| format!("-c 4096 -ot {pattern}=CPU");
    let everything = header.split("-c 4096 --no-op-offload", 1);
    let long = "x".repeat(9000);
    for (pattern, why) in [
        (r"blk\.(?!4)[0-9]+\.ffn_.*_exps", "look-around"),
        (r"(blk)\.1\..*\1", "backreferences"),
        ("(", "unclosed group"),
        ("((a{1000}){1000}){1000}", "size"),
        (long.as_str(), "9000 bytes"),
    ] {
        let entry = header.entry(&options(pattern), json!({}));
        let split = entry.memory_split(None).expect("a split");
        assert!(split.gpus[0] >= everything.gpus[0], "{pattern}");
        assert!(split.host.0 > 16 << 30, "{pattern}: {}", split.host);
        let (_, source) = entry.demand(1, None).unwrap();
        let warning = source.warning().expect("a warning");
        assert_has(warning, &["--override-tensor", "cannot be evaluated", why]);
    }
    // Patterns that take exponential time in other engines.
    let begun = SystemTime::now();
    for pattern in ["(b+)+$", "((b|k|l)*)*$", "(.*)*(.*)*x"] {
        header.split(&options(pattern), 1);
    }
    let took = begun.elapsed().unwrap_or_default();
    assert!(took.as_secs() < 20, "{took:?}");
}

#[test]
fn options_that_contradict_each_other_are_named_with_their_values() {
    let header = Header::named("llama-3.1-8b-q4_k_m");
    let problems = |options: &str, devices: u64| {
        let pool = json!({"pool_config": {"gpus_per_replica": devices}});
        let findings = header.entry(options, pool).findings();
        assert!(
            findings
                .iter()
                .all(|finding| finding.key == "engine_config.command")
        );
        let problems: Vec<String> = findings
            .into_iter()
            .map(|finding| finding.problem)
            .collect();
        problems.join("\n")
    };
    for (options, devices, parts) in [
        ("-ngl many", 1, ["--n-gpu-layers is `many`", "whole number"]),
        ("-ncmoe 1.5", 1, ["--n-cpu-moe is `1.5`", "whole number"]),
        ("-ot exps", 1, ["`exps` without a place", "PATTERN=CPU"]),
        ("-ot exps=GPU", 1, ["the place `GPU`", "CUDA0"]),
        ("-ot exps=CUDA3", 2, ["to device 3", "2 devices"]),
        (
            "-sm rows",
            1,
            ["--split-mode is `rows`", "none, layer, row, tensor"],
        ),
        ("-ts 1,x", 2, ["the part `x`", "0 or more"]),
        ("-ts 1,-1", 2, ["the part `-1`", "0 or more"]),
        ("-ts 1,1,1", 2, ["has 3 parts", "2 devices"]),
        ("-sm none -ts 1,1", 2, ["2 parts", "single GPU"]),
        ("-sm none -mg 4", 2, ["--main-gpu is 4", "2 devices"]),
        (
            "-dev none -ngl 20",
            1,
            ["--device none", "--n-gpu-layers 20"],
        ),
        ("-dev CUDA0,CUDA1", 1, ["names 2 devices", "has 1"]),
    ] {
        assert_has(&problems(options, devices), &parts);
    }
    assert_eq!(
        problems("-ngl 99 -ts 3,1 -sm layer -mg 0 -ot exps=CPU", 2),
        ""
    );
    let many = "a=CPU,".repeat(5000);
    assert_has(
        &problems(&format!("-ot {many}b=CPU"), 1),
        &["5001 patterns", "at most 4096"],
    );
}

#[test]
fn without_a_gpu_no_memory_of_one_is_counted() {
    let header = Header::named("llama-3.1-8b-q4_k_m");
    let entry = header.entry("-c 8192 -np 1 -ngl 99", json!({}));
    let host = DeviceSize {
        is_host: true,
        ..DeviceSize::gpu(Bytes(32 << 30))
    };
    let (spec, source) = entry.spec_on(&Config::default(), None, Some(host)).unwrap();
    // llama-fit-params --device none: weights of 4685 MiB, a cache of 1024 and a buffer of 266.
    let known = (4685 + 1024 + 266) * MIB;
    let got = spec.bytes_per_device.0 - LLAMA_CPU_OVERHEAD.0;
    assert!(is_within(got, known, 50, 0), "{}", spec.bytes_per_device);
    assert_eq!(source.warning(), None);
    assert_eq!(entry.memory_split(Some(host)), None);
}

#[test]
fn on_a_gpu_with_the_machines_memory_the_part_on_the_host_counts_on_the_gpu() {
    let header = Header::named("qwen3-30b-a3b-q4_k_m");
    let entry = header.entry("-c 8192 -np 1 --n-cpu-moe 20", json!({}));
    let unified = DeviceSize {
        is_unified: true,
        ..DeviceSize::gpu(Bytes(128 << 30))
    };
    let split = entry.memory_split(None).expect("a split");
    let of = |device| {
        let figures = entry.spec_on(&Config::default(), None, Some(device));
        let spec = figures.unwrap().0;
        (spec.bytes_per_device, spec.host_bytes)
    };
    let gpu = DeviceSize::gpu(Bytes(128 << 30));
    assert_eq!(of(gpu), (split.gpus[0], split.host));
    assert_eq!(of(unified), (split.gpus[0] + split.host, Bytes::ZERO));
    assert_eq!(entry.memory_split(Some(unified)), None, "counted once");
}

#[test]
fn a_projector_for_images_is_on_the_first_gpu_unless_it_stays_on_the_host() {
    let header = Header::named("llama-3.1-8b-q4_k_m");
    let projector = Header::named("mamba-2.8b-f16");
    let bytes = std::fs::metadata(&projector.path).unwrap().len();
    let path = projector.path.display();
    let plain = header.split("-c 4096", 2);
    let with = header.split(&format!("-c 4096 --mmproj {path}"), 2);
    assert!(
        is_within(with.gpus[0].0 - plain.gpus[0].0, bytes, 10, 0),
        "{with}"
    );
    assert_eq!(with.gpus[1], plain.gpus[1]);
    let on_host = header.split(&format!("-c 4096 --mmproj {path} --no-mmproj-offload"), 2);
    assert_eq!(on_host.gpus, plain.gpus);
    assert!(
        is_within(on_host.host.0 - plain.host.0, bytes, 10, 0),
        "{on_host}"
    );
}

#[test]
fn a_draft_model_counts_with_its_own_cache_and_layers() {
    let header = Header::named("qwen3-30b-a3b-q4_k_m");
    let draft = Header::named("llama-3.1-8b-q4_k_m");
    let path = draft.path.display();
    let alone = draft.split("-c 8192 -np 1", 1);
    let plain = header.split("-c 8192 -np 1", 1);
    for name in ["-md", "--model-draft", "--spec-draft-model"] {
        let with = header.split(&format!("-c 8192 -np 1 {name} {path}"), 1);
        let added = with.gpus[0].0 - plain.gpus[0].0;
        assert_eq!(added, alone.gpus[0].0 - GPU_OVERHEAD.0, "{name}");
    }
    let on_host = header.split(
        &format!("-c 8192 -np 1 -md {path} -ngld 0 --no-op-offload"),
        1,
    );
    assert_eq!(on_host.gpus, plain.gpus);
    assert!(on_host.host.0 - plain.host.0 > 5 << 30, "{on_host}");
    let missing = header.entry("-c 8192 -md /nowhere/draft.gguf", json!({}));
    let (_, source) = missing.demand(1, None).unwrap();
    assert_has(
        source.warning().expect("a warning"),
        &["draft model", "/nowhere/draft.gguf"],
    );
}
