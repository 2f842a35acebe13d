//! The driver of the embedded engine: our own executable, or its build with CUDA for NVIDIA GPUs, started as `EXE engine …`. It
//! listens on a Unix socket before it has loaded. Builds the command line and parses health responses.

use std::borrow::Cow;
use std::ffi::OsString;

use super::cuda_program::choose;
use super::driver::{EngineDriver, PreparedCommand};
use super::report::{CandleDevice, Launch, Program};
use crate::connection::Endpoint;
use crate::failures::{EngineError, Failure, cuda_trouble};
use crate::health::probe as health;

pub(crate) struct CandleDriver;

impl EngineDriver for CandleDriver {
    fn prepare(
        &self,
        launch: &Launch,
        endpoint: &Endpoint,
    ) -> Result<PreparedCommand, EngineError> {
        let (Program::Candle(program), Endpoint::Unix(socket)) = (&launch.program, endpoint) else {
            // The driver table and the endpoint are chosen by the program, so this cannot happen.
            return Err(EngineError::WrongEndpoint {
                model: launch.model_name.clone(),
                endpoint: endpoint.clone(),
            });
        };
        let Some(mut device) = devices(program.device, launch.devices.len()) else {
            return Err(EngineError::CandleDevices {
                model: launch.model_name.clone(),
                count: launch.devices.len(),
            });
        };
        let (executable, env) = choose(program, launch)?;
        let mut argv: Vec<OsString> = vec![executable.into(), "engine".into()];
        let mut option = |name: &str, value: OsString| argv.extend([name.into(), value]);
        option("--model-dir", program.model_dir.clone().into());
        option("--model-name", launch.model_name.clone().into());
        option("--socket", socket.clone().into());
        option("--context", program.context_tokens.to_string().into());
        option("--concurrency", program.concurrency.to_string().into());
        if let Some(threads) = program.threads {
            option("--threads", threads.to_string().into());
        }
        if let Some(workers) = program.tokenizer_workers {
            option("--tokenizer-workers", workers.to_string().into());
        }
        let budgets = &program.budgets;
        for (name, tokens) in [
            ("--max-input-tokens", budgets.input),
            ("--max-batch-prefill-tokens", budgets.prefill),
            ("--max-batch-total-tokens", budgets.total),
            (
                "--waiting-served-ratio-milli",
                budgets.joining.map(|joining| joining.served_ratio_milli),
            ),
            (
                "--max-waiting-steps",
                budgets.joining.map(|joining| joining.steps),
            ),
        ] {
            if let Some(tokens) = tokens {
                option(name, tokens.to_string().into());
            }
        }
        let speculation = &program.speculation;
        for (name, tokens) in [
            ("--num-speculative-tokens", speculation.tokens),
            ("--prompt-lookup-max", speculation.lookup_max),
            ("--prompt-lookup-min", speculation.lookup_min),
        ] {
            if let Some(tokens) = tokens {
                option(name, tokens.to_string().into());
            }
        }
        if let Some(form) = program.quantization {
            option("--quantization", form.as_str().into());
        }
        let numbers = program.numbers;
        for (name, value) in [
            ("--dtype", numbers.products.as_str()),
            ("--kv-cache-dtype", numbers.kv_cache.as_str()),
        ] {
            // Omitted at its default, which lets a CUDA program of an earlier version start.
            if value != "auto" {
                option(name, value.into());
            }
        }
        if let Some(task) = program.task {
            option("--task", task.as_str().into());
        }
        for (name, folder) in &program.adapters {
            let mut module = OsString::from(format!("{name}="));
            module.push(folder);
            option("--lora-modules", module);
        }
        let room = program.adapter_room;
        if room.count > 0 || !program.adapters.is_empty() {
            option("--max-loras", room.count.to_string().into());
            option("--max-lora-rank", room.rank.to_string().into());
        }
        if program.device == CandleDevice::Cuda {
            // Without the limit, a GPU that can hold the model would get all of it, and use more than is reserved there.
            let reserved = launch.bytes_per_device.0;
            option("--device-memory", reserved.to_string().into());
            if program.overflows {
                device.push_str(",cpu");
            }
        }
        option("--device", device.into());
        if program.verify {
            argv.push("--verify".into());
        }
        Ok(PreparedCommand {
            argv,
            env,
            working_dir: None,
            ready_path: "/health".to_owned(),
            lifeline: true,
            cleanup: None,
            install: None,
        })
    }

    fn memory_path(&self) -> Option<&'static str> {
        Some("/memory")
    }

    fn advice(&self, launch: &Launch, output: &str) -> Option<(Failure, Cow<'static, str>)> {
        match &launch.program {
            Program::Candle(candle) if candle.device == CandleDevice::Cuda => {
                let (failure, advice) = cuda_trouble::advice(output)?;
                Some((failure, advice.into()))
            }
            _ => None,
        }
    }

    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)> {
        health::stage_of(body)
    }
}

/// The devices by their number among those visible to the engine; `None` if the placement is not possible.
fn devices(kind: CandleDevice, count: usize) -> Option<String> {
    match kind {
        CandleDevice::Cpu if count == 1 => Some("cpu".to_owned()),
        CandleDevice::Metal if count == 1 => Some("metal:0".to_owned()),
        CandleDevice::Cuda if count > 0 => {
            let each: Vec<String> = (0..count).map(|index| format!("cuda:{index}")).collect();
            Some(each.join(","))
        }
        CandleDevice::Cpu | CandleDevice::Cuda | CandleDevice::Metal => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> crate::launch::report::CandleProgram {
        let (executable, model_dir) = ("/opt/model-pool".into(), "/models/m".into());
        crate::launch::report::CandleProgram::new(executable, model_dir, CandleDevice::Cpu)
    }

    fn command_line(program: crate::launch::report::CandleProgram) -> String {
        let launch = Launch {
            replica: pool::ReplicaId(1),
            model_name: "lab/m".to_owned(),
            program: Program::Candle(program),
            devices: vec![crate::launch::report::DeviceAddress {
                id: pool::DeviceId(0),
                index: 0,
                uuid: None,
                kind: crate::launch::report::DeviceKind::Host,
                variable: None,
                total: pool::Bytes::ZERO,
            }],
            bytes_per_device: pool::Bytes::ZERO,
            runtime_dir: "/run".into(),
            log_dir: "/log".into(),
            member: None,
            watch: crate::health::Watch {
                activity: Default::default(),
                limits: crate::health::LivenessLimits::default(),
                model_name: "lab/m".to_owned(),
                metrics: None,
            },
        };
        let prepared = CandleDriver.prepare(&launch, &Endpoint::Unix("/run/socket".into()));
        let argv = prepared.expect("a command line").argv;
        argv.join(std::ffi::OsStr::new(" "))
            .into_string()
            .expect("text")
    }

    #[test]
    fn chosen_number_types_and_speculation_become_engine_options() {
        let plain = command_line(program());
        assert!(
            !plain.contains("dtype") && !plain.contains("lookup"),
            "{plain}"
        );
        let chosen = crate::launch::report::CandleProgram {
            numbers: catalog::NumberTypes {
                products: catalog::ProductType::F32,
                kv_cache: catalog::CacheType::F16,
            },
            speculation: catalog::Speculation {
                tokens: Some(0),
                lookup_max: Some(4),
                lookup_min: Some(1),
            },
            ..program()
        };
        let chosen = command_line(chosen);
        let speculation = "--num-speculative-tokens 0 --prompt-lookup-max 4 --prompt-lookup-min 1";
        assert!(chosen.contains(speculation), "{chosen}");
        assert!(
            chosen.contains("--dtype float32 --kv-cache-dtype float16"),
            "{chosen}"
        );
    }

    #[test]
    fn gpus_are_numbered_as_the_engine_sees_them() {
        let named = |kind, count| devices(kind, count);
        assert_eq!(named(CandleDevice::Cuda, 1).as_deref(), Some("cuda:0"));
        assert_eq!(
            named(CandleDevice::Cuda, 3).as_deref(),
            Some("cuda:0,cuda:1,cuda:2")
        );
        assert_eq!(named(CandleDevice::Cpu, 1).as_deref(), Some("cpu"));
        assert_eq!(named(CandleDevice::Metal, 1).as_deref(), Some("metal:0"));
        assert_eq!(named(CandleDevice::Cpu, 2), None);
        assert_eq!(named(CandleDevice::Cuda, 0), None);
    }
}
