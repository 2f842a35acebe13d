//! The driver of the embedded engine: our own executable as `EXE engine …`, listening on a Unix
//! socket before it has loaded. It owns that command line and the reading of its health answer; it
//! knows nothing of what happens inside the engine.

use std::ffi::OsString;

use super::{CandleDevice, Endpoint, EngineDriver, EngineFault, Launch, Prepared, Program, health};

pub(super) struct CandleDriver;

impl EngineDriver for CandleDriver {
    fn prepare(&self, launch: &Launch, endpoint: &Endpoint) -> Result<Prepared, EngineFault> {
        let (Program::Candle(program), Endpoint::Unix(socket)) = (&launch.program, endpoint) else {
            // The table of drivers and the choice of the endpoint go by the program.
            return Err(EngineFault::WrongEndpoint {
                model: launch.model_name.clone(),
                endpoint: endpoint.clone(),
            });
        };
        if launch.devices.len() != 1 {
            return Err(EngineFault::CandleDevices {
                model: launch.model_name.clone(),
                count: launch.devices.len(),
            });
        }
        let mut argv: Vec<OsString> = vec![program.executable.clone().into(), "engine".into()];
        let mut option = |name: &str, value: OsString| argv.extend([name.into(), value]);
        option("--model-dir", program.model_dir.clone().into());
        option("--model-name", launch.model_name.clone().into());
        option("--socket", socket.clone().into());
        option("--context", program.context_tokens.to_string().into());
        option("--concurrency", program.concurrency.to_string().into());
        if let Some(threads) = program.threads {
            option("--threads", threads.to_string().into());
        }
        let budgets = &program.budgets;
        for (name, tokens) in [
            ("--max-input-tokens", budgets.input),
            ("--max-batch-prefill-tokens", budgets.prefill),
            ("--max-batch-total-tokens", budgets.total),
        ] {
            if let Some(tokens) = tokens {
                option(name, tokens.to_string().into());
            }
        }
        let device = match program.device {
            CandleDevice::Cpu => "cpu",
            CandleDevice::Cuda => "cuda",
            CandleDevice::Metal => "metal",
        };
        option("--device", device.into());
        Ok(Prepared {
            argv,
            env: program.env.clone(),
            working_dir: None,
            ready_path: "/health".to_owned(),
            lifeline: true,
            cleanup: None,
            install: None,
        })
    }

    fn progress(&self, body: &[u8]) -> Option<(String, Option<u8>)> {
        health::stage_of(body)
    }
}
