//! `model-pool simulate`, on the devices that `serve` would find here.

use crate::devices;
use simulate::SimulateArgs;

pub fn run(args: &SimulateArgs) -> Result<(), String> {
    simulate::run(args, &devices::found)
}
