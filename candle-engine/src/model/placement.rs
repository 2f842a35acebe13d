//! Divides a decoder's layers among devices. Pure: depends only on sizes and free memory.

use super::sizes::Sizes;
use super::stage::StageShare;
use candle_core::Device;
use std::fmt::Write;

/// The device of each part of a decoder.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub embedding: Device,
    /// One per layer.
    pub blocks: Vec<Device>,
    pub head: Device,
}

impl Placement {
    /// Places everything on one device.
    pub fn on(device: &Device, layers: usize) -> Self {
        Self {
            embedding: device.clone(),
            blocks: vec![device.clone(); layers],
            head: device.clone(),
        }
    }

    /// Applies a division; `devices` correspond to its rooms.
    pub fn by(division: &Division, devices: &[Device]) -> Option<Self> {
        Some(Self {
            embedding: devices.get(division.embedding)?.clone(),
            blocks: division
                .blocks
                .iter()
                .map(|room| devices.get(*room).cloned())
                .collect::<Option<_>>()?,
            head: devices.get(division.head)?.clone(),
        })
    }

    /// Groups consecutive parts on the same device, in order of computation.
    pub(super) fn shares(&self) -> Vec<(&Device, StageShare)> {
        let mut shares = vec![(
            &self.embedding,
            StageShare {
                embedding: true,
                blocks: 0..0,
                head: false,
            },
        )];
        let mut on = |device, block: Option<usize>| {
            let next = block.unwrap_or(self.blocks.len());
            let last = shares.len() - 1;
            let (last_device, last) = &mut shares[last];
            if same(last_device, device) {
                last.blocks.end = block.map_or(last.blocks.end, |block| block + 1);
                last.head = block.is_none();
            } else {
                let end = block.map_or(next, |block| block + 1);
                shares.push((
                    device,
                    StageShare {
                        embedding: false,
                        blocks: next..end,
                        head: block.is_none(),
                    },
                ));
            }
        };
        for (block, device) in self.blocks.iter().enumerate() {
            on(device, Some(block));
        }
        on(&self.head, None);
        shares
    }
}

fn same(a: &Device, b: &Device) -> bool {
    a.same_device(b)
}

/// A device that can hold layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// Name for the explanation: `GPU 0`, `CPU`.
    pub name: String,
    pub free_bytes: u64,
    pub is_cpu: bool,
}

/// The room of each part, by index, and an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the explanation belongs in the log"]
pub(crate) struct Division {
    pub embedding: usize,
    pub blocks: Vec<usize>,
    pub head: usize,
    pub explanation: String,
}

/// Divides layers among rooms. Prefers a single GPU that holds everything, since devices wait for each other; then all GPUs, in
/// proportion to their free memory; then the first layers on the CPU and the rest on the GPUs.
///
/// # Errors
/// If the model does not fit, with the numbers.
pub(crate) fn divide(sizes: &Sizes, rooms: &[Room]) -> Result<Division, String> {
    let cpu = rooms.iter().position(|room| room.is_cpu);
    let gpus: Vec<usize> = (0..rooms.len())
        .filter(|room| !rooms[*room].is_cpu)
        .collect();
    let layers = sizes.blocks.len();
    let roomiest = gpus
        .iter()
        .copied()
        .max_by_key(|gpu| (rooms[*gpu].free_bytes, std::cmp::Reverse(*gpu)));
    let total = sizes.embedding + sizes.head + sizes.working + sizes.blocks.iter().sum::<u64>();
    if let Some(gpu) = roomiest.filter(|gpu| rooms[*gpu].free_bytes >= total) {
        return Ok(explained(sizes, rooms, gpu, vec![gpu; layers], gpu));
    }
    for on_cpu in 0..=layers {
        let first = match (on_cpu, cpu) {
            (0, _) => None,
            (_, None) => break,
            (_, Some(cpu)) => Some(cpu),
        };
        let gpu_layers = &sizes.blocks[on_cpu..];
        if gpu_layers.is_empty() || gpus.is_empty() {
            continue;
        }
        let embedding = if first.is_none() { sizes.embedding } else { 0 };
        let Some(blocks) = spread(
            gpu_layers,
            (embedding, sizes.head, sizes.working),
            &gpus,
            rooms,
        ) else {
            continue;
        };
        if first.is_some_and(|cpu| rooms[cpu].free_bytes < cpu_bytes(sizes, on_cpu, false)) {
            break;
        }
        let head = blocks[blocks.len() - 1];
        let embedding = first.unwrap_or(blocks[0]);
        let mut all = vec![embedding; on_cpu];
        all.extend(blocks);
        return Ok(explained(sizes, rooms, embedding, all, head));
    }
    match cpu {
        Some(cpu) if rooms[cpu].free_bytes >= cpu_bytes(sizes, layers, true) => {
            Ok(explained(sizes, rooms, cpu, vec![cpu; layers], cpu))
        }
        _ => {
            let mut problem =
                format!("{total} bytes are needed for {layers} layers, and there are");
            for room in rooms {
                let _ = write!(problem, " {} free on {},", room.free_bytes, room.name);
            }
            problem.push_str(" give the KV cache less, or quantise the weights");
            Err(problem)
        }
    }
}

fn cpu_bytes(sizes: &Sizes, layers: usize, head: bool) -> u64 {
    let blocks: u64 = sizes.blocks[..layers].iter().sum();
    sizes.embedding + blocks + sizes.working + if head { sizes.head } else { 0 }
}

/// Gives each GPU layers in proportion to its free memory. If that fails because layers are indivisible, fills one GPU after
/// another.
fn spread(
    blocks: &[u64],
    (embedding, head, working): (u64, u64, u64),
    gpus: &[usize],
    rooms: &[Room],
) -> Option<Vec<usize>> {
    let free = |gpu: usize| rooms[gpu].free_bytes.saturating_sub(working);
    let all_free: u64 = gpus.iter().map(|gpu| free(*gpu)).sum();
    let all = embedding + head + blocks.iter().sum::<u64>();
    if all > all_free {
        return None;
    }
    let fills = |fraction: f64| {
        let mut gpu = 0;
        let mut used = embedding;
        let mut places = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let needed = if index + 1 == blocks.len() {
                block + head
            } else {
                *block
            };
            loop {
                let room = free(*gpus.get(gpu)?);
                let last = gpu + 1 == gpus.len();
                // A layer goes to the GPU whose share contains most of it; the last GPU takes the rest.
                let within = last || (used + block / 2) as f64 <= room as f64 * fraction;
                if within && used + needed <= room {
                    break;
                }
                gpu += 1;
                used = 0;
            }
            used += block;
            places.push(gpus[gpu]);
        }
        Some(places)
    };
    fills(all as f64 / all_free as f64).or_else(|| fills(f64::INFINITY))
}

fn explained(
    sizes: &Sizes,
    rooms: &[Room],
    embedding: usize,
    blocks: Vec<usize>,
    head: usize,
) -> Division {
    let mut explanation = String::new();
    let mut first = 0;
    while first < blocks.len() {
        let room = blocks[first];
        let end = blocks[first..]
            .iter()
            .position(|other| *other != room)
            .map_or(blocks.len(), |count| first + count);
        let bytes: u64 = sizes.blocks[first..end].iter().sum();
        let _ = write!(
            explanation,
            "layers {first} to {} ({bytes} bytes) on {} ({} free); ",
            end - 1,
            rooms[room].name,
            rooms[room].free_bytes
        );
        first = end;
    }
    let _ = write!(
        explanation,
        "embedding on {}, head on {}",
        rooms[embedding].name, rooms[head].name
    );
    Division {
        embedding,
        blocks,
        head,
        explanation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> Sizes {
        Sizes {
            embedding: 10,
            blocks: vec![10; 8],
            head: 10,
            working: 5,
        }
    }

    fn gpu(name: &str, free_bytes: u64) -> Room {
        Room {
            name: name.to_owned(),
            free_bytes,
            is_cpu: false,
        }
    }

    fn cpu(free_bytes: u64) -> Room {
        Room {
            is_cpu: true,
            ..gpu("CPU", free_bytes)
        }
    }

    #[test]
    fn a_gpu_with_room_for_the_complete_model_gets_all_of_it() {
        let division = divide(&sizes(), &[gpu("A", 104), gpu("B", 105), cpu(1000)]).unwrap();
        assert_eq!(division.blocks, [1; 8]);
        assert_eq!((division.embedding, division.head), (1, 1));
    }

    #[test]
    fn gpus_get_shares_in_proportion_to_their_free_memory() {
        let division = divide(&sizes(), &[gpu("A", 95), gpu("B", 50)]).unwrap();
        assert_eq!(division.blocks, [0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(
            division.explanation,
            "layers 0 to 5 (60 bytes) on A (95 free); layers 6 to 7 (20 bytes) on B (50 free); embedding on A, head on B"
        );
    }

    #[test]
    fn layers_that_do_not_fit_on_the_gpus_run_first_on_the_cpu() {
        let division = divide(&sizes(), &[gpu("A", 46), cpu(1000)]).unwrap();
        assert_eq!(division.blocks, [1, 1, 1, 1, 1, 0, 0, 0]);
        assert_eq!((division.embedding, division.head), (1, 0));
    }

    #[test]
    fn without_a_gpu_the_complete_model_runs_on_the_cpu() {
        let division = divide(&sizes(), &[cpu(105)]).unwrap();
        assert_eq!(division.blocks, [0; 8]);
    }

    #[test]
    fn a_model_that_fits_on_no_device_is_refused_with_the_numbers() {
        let problem = divide(&sizes(), &[gpu("A", 20), cpu(30)]).unwrap_err();
        assert!(problem.contains("105 bytes are needed"), "{problem}");
        assert!(problem.contains("30 free on CPU"), "{problem}");
    }

    #[test]
    fn adjacent_parts_on_one_device_form_one_share() {
        let shares = Placement::on(&Device::Cpu, 3);
        let shares = shares.shares();
        assert_eq!(shares.len(), 1);
        assert_eq!(
            shares[0].1,
            StageShare {
                embedding: true,
                blocks: 0..3,
                head: true
            }
        );
    }
}
