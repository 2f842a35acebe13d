//! Tests of recipes' properties.

use std::collections::BTreeMap;

use super::*;
use crate::engines::{CANDLE_CPU_OVERHEAD, GPU_OVERHEAD};
use crate::weights::AdapterRoom;

/// A model that generates text and whose files do not exist.
pub fn candle(device: ComputeDevice) -> CandleRecipe {
    CandleRecipe {
        model_path: "/nowhere".into(),
        serves: Some(ModelTask::Texts),
        task: None,
        context: Some(1024),
        concurrency: 2,
        threads: None,
        tokenizer_workers: None,
        budgets: TokenBudgets::default(),
        speculation: Speculation::default(),
        quantization: None,
        numbers: NumberTypes::default(),
        verify: false,
        overflows: false,
        device,
        sleep: Sleep::Off,
        adapters: Vec::new(),
        adapter_room: AdapterRoom { count: 0, rank: 64 },
        env: BTreeMap::new(),
    }
}

#[test]
fn on_a_gpu_the_embedded_engine_sleeps_where_it_generates_texts() {
    let parking = |device, serves, sleep| {
        let recipe = CandleRecipe {
            serves,
            sleep,
            ..candle(device)
        };
        let parking = Recipe::Candle(recipe).parking();
        parking.map(|parking| (parking.weights_on_host, parking.resident_per_device))
    };
    let on_a_gpu = |serves| parking(ComputeDevice::Cuda, serves, Sleep::Weights);
    let copied = Some((true, GPU_OVERHEAD));
    assert_eq!(on_a_gpu(Some(ModelTask::Texts)), copied);
    assert_eq!(on_a_gpu(None), copied, "its files are not here yet");
    assert_eq!(on_a_gpu(Some(ModelTask::Ranks)), None);
    let on_the_cpu = parking(ComputeDevice::Cpu, Some(ModelTask::Ranks), Sleep::Weights);
    assert_eq!(on_the_cpu, Some((false, CANDLE_CPU_OVERHEAD)));
    let discarded = parking(ComputeDevice::Cuda, Some(ModelTask::Texts), Sleep::Discard);
    assert_eq!(discarded, None);
}
