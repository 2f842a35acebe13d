//! Tests of `options.rs`.

use super::*;

pub(super) fn options() -> EngineOptions {
    EngineOptions {
        context_tokens: 128,
        ..EngineOptions::new("somewhere", "name", Listen::Unix("socket".into()))
    }
}

#[test]
fn invalid_engine_options_are_refused_by_name() {
    assert!(options().validate().is_ok());
    for (wrong, name) in [
        (
            EngineOptions {
                concurrency: 0,
                ..options()
            },
            "concurrency",
        ),
        (
            EngineOptions {
                context_tokens: 0,
                ..options()
            },
            "context_tokens",
        ),
        (
            EngineOptions {
                threads: Some(0),
                ..options()
            },
            "threads",
        ),
        (
            EngineOptions {
                tokenizer_workers: Some(0),
                ..options()
            },
            "tokenizer_workers",
        ),
        (
            EngineOptions {
                model_name: String::new(),
                ..options()
            },
            "model_name",
        ),
    ] {
        let message = wrong.validate().expect_err("must be refused").to_string();
        assert!(message.starts_with(name), "{message}");
    }
}

#[test]
fn a_device_may_be_named_once_and_the_cpu_only_last() {
    use DeviceChoice::{Cpu, Cuda, Metal};
    let check = |devices: &[DeviceChoice]| {
        let options = EngineOptions {
            devices: devices.to_vec(),
            ..options()
        };
        options.validate().map_err(|error| error.to_string())
    };
    for right in [&[Cpu][..], &[Cuda(0), Cuda(1)], &[Cuda(1), Cuda(0), Cpu]] {
        assert_eq!(check(right), Ok(()));
    }
    for (wrong, word) in [
        (&[][..], "no device"),
        (&[Cuda(0), Cuda(1), Cuda(0)], "cuda:0 is named twice"),
        (&[Cpu, Cuda(0)], "name it once, and last"),
        (&[Cuda(0), Metal(0)], "cannot be mixed"),
    ] {
        let problem = check(wrong).expect_err("must be refused");
        assert!(problem.contains(word), "{problem}");
    }
}

#[test]
fn a_device_round_trips_through_its_text() {
    for text in ["cpu", "cuda:0", "cuda:7", "metal:0"] {
        let device: DeviceChoice = text.parse().expect("a device");
        assert_eq!(device.to_string(), text);
    }
    assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
    for wrong in ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:0,cuda:1"] {
        assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
    }
}

#[test]
fn a_task_round_trips_through_its_text() {
    for task in [Task::Generate, Task::Embed, Task::Rerank] {
        assert_eq!(task.to_string().parse(), Ok(task));
    }
    let problem = "score".parse::<Task>().expect_err("it is none");
    assert!(problem.contains("rerank"), "{problem}");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_without_its_feature_is_a_clear_error() {
    let message = DeviceChoice::Cuda(0)
        .open()
        .expect_err("there is no CUDA in this build")
        .to_string();
    assert!(message.contains("--features cuda"), "{message}");
}
