//! A block's feed-forward part: one network, gated or not, or experts of which each token uses a few.

use super::compute::Compute;
use super::low_rank::{self, AdaptedRows, Target};
use super::route::Router;
use super::weights::Loader;
use crate::error::EngineError;
use crate::spec::{Activation, ExpertNames, Experts, FeedForward as FeedForwardSpec};
use candle_core::Result;

pub(super) enum FeedForward<C: Compute> {
    Gated(GatedFeedForward<C>),
    Plain(PlainFeedForward<C>),
    Experts(Box<ExpertPart<C>>),
}

/// `down(activation(up(x)))`.
pub(super) struct PlainFeedForward<C: Compute> {
    up: C::Matrix,
    down: C::Matrix,
    activation: Activation,
}

/// `down(activation(gate(x)) · up(x))`.
pub(super) struct GatedFeedForward<C: Compute> {
    gate: C::Matrix,
    up: C::Matrix,
    down: C::Matrix,
    activation: Activation,
}

pub(super) struct ExpertPart<C: Compute> {
    spec: Experts,
    hidden: usize,
    router: C::Matrix,
    /// Bias added to the scores for ranking experts (DeepSeek V3).
    rank_bias: Option<Vec<f32>>,
    experts: Vec<GatedFeedForward<C>>,
    shared: Option<GatedFeedForward<C>>,
    shared_gate: Option<C::Matrix>,
}

/// Working memory that the blocks share.
pub(super) struct Buffers<C: Compute> {
    gate: C::Rows,
    up: C::Rows,
    logits: C::Rows,
    picked: C::Rows,
    part: C::Rows,
    on_host: Vec<f32>,
    all_rows: Vec<usize>,
    router: Router,
    low: low_rank::Buffers<C>,
}

impl<C: Compute> Default for Buffers<C> {
    fn default() -> Self {
        Self {
            gate: C::Rows::default(),
            up: C::Rows::default(),
            logits: C::Rows::default(),
            picked: C::Rows::default(),
            part: C::Rows::default(),
            on_host: Vec::new(),
            all_rows: Vec::new(),
            router: Router::default(),
            low: low_rank::Buffers::default(),
        }
    }
}

impl<C: Compute> FeedForward<C> {
    /// Loads the tensors of the block `name` (`model.layers.N`).
    pub fn load(
        loader: &Loader<'_, C>,
        name: &str,
        hidden: usize,
        spec: &FeedForwardSpec,
    ) -> std::result::Result<Self, EngineError> {
        Ok(match spec {
            FeedForwardSpec::Gated(gated) if gated.fused => {
                let [gate, up] = loader.parts(
                    &format!("{name}.mlp.gate_up_proj"),
                    [gated.width; 2],
                    hidden,
                    gated.bias,
                )?;
                let down = format!("{name}.mlp.down_proj");
                Self::Gated(GatedFeedForward {
                    gate,
                    up,
                    down: loader.matrix(&down, hidden, gated.width, gated.bias)?,
                    activation: gated.activation,
                })
            }
            FeedForwardSpec::Gated(gated) => Self::Gated(GatedFeedForward::load(
                loader,
                &format!("{name}.mlp"),
                ["gate_proj", "up_proj", "down_proj"],
                (hidden, gated.width, gated.bias),
                gated.activation,
            )?),
            FeedForwardSpec::Plain(plain) => {
                let (up, down) = (
                    format!("{name}.mlp.up_proj"),
                    format!("{name}.mlp.down_proj"),
                );
                Self::Plain(PlainFeedForward {
                    up: loader.matrix(&up, plain.width, hidden, plain.bias)?,
                    down: loader.matrix(&down, hidden, plain.width, plain.bias)?,
                    activation: plain.activation,
                })
            }
            FeedForwardSpec::Experts(experts) => {
                Self::Experts(Box::new(ExpertPart::load(loader, name, hidden, experts)?))
            }
        })
    }

    pub fn forward(
        &self,
        compute: &mut C,
        rows: usize,
        buffers: &mut Buffers<C>,
        adapted: AdaptedRows<'_, C>,
        input: &C::Rows,
        output: &mut C::Rows,
    ) -> Result<()> {
        match self {
            Self::Gated(gated) => {
                let Buffers { gate, up, low, .. } = buffers;
                gated.forward(compute, (gate, up, low), adapted, input, output)
            }
            Self::Plain(plain) => {
                let Buffers { up, low, .. } = buffers;
                compute.linear(input, [&plain.up], [&mut *up])?;
                low_rank::add(compute, adapted, Target::Up, input, up, low)?;
                compute.activate(plain.activation, up)?;
                compute.linear(up, [&plain.down], [&mut *output])?;
                low_rank::add(compute, adapted, Target::Down, up, output, low)
            }
            // Adapters of experts are rejected before they are loaded.
            Self::Experts(experts) => experts.forward(compute, rows, buffers, input, output),
        }
    }
}

impl<C: Compute> GatedFeedForward<C> {
    fn load(
        loader: &Loader<'_, C>,
        name: &str,
        [gate, up, down]: [&str; 3],
        (hidden, width, bias): (usize, usize, bool),
        activation: Activation,
    ) -> std::result::Result<Self, EngineError> {
        Ok(Self {
            gate: loader.matrix(&format!("{name}.{gate}"), width, hidden, bias)?,
            up: loader.matrix(&format!("{name}.{up}"), width, hidden, bias)?,
            down: loader.matrix(&format!("{name}.{down}"), hidden, width, bias)?,
            activation,
        })
    }

    fn forward(
        &self,
        compute: &mut C,
        (gate, up, low): (&mut C::Rows, &mut C::Rows, &mut low_rank::Buffers<C>),
        adapted: AdaptedRows<'_, C>,
        input: &C::Rows,
        output: &mut C::Rows,
    ) -> Result<()> {
        compute.linear(input, [&self.gate, &self.up], [&mut *gate, &mut *up])?;
        low_rank::add(compute, adapted, Target::Gate, input, gate, low)?;
        low_rank::add(compute, adapted, Target::Up, input, up, low)?;
        compute.gate(self.activation, gate, up)?;
        compute.linear(gate, [&self.down], [&mut *output])?;
        low_rank::add(compute, adapted, Target::Down, gate, output, low)
    }
}

impl<C: Compute> ExpertPart<C> {
    fn load(
        loader: &Loader<'_, C>,
        name: &str,
        hidden: usize,
        spec: &Experts,
    ) -> std::result::Result<Self, EngineError> {
        let (part, names) = match spec.naming {
            ExpertNames::Mixtral => ("block_sparse_moe", ["w1", "w3", "w2"]),
            ExpertNames::Qwen => ("mlp", ["gate_proj", "up_proj", "down_proj"]),
        };
        let name = format!("{name}.{part}");
        let rank_bias = format!("{name}.gate.e_score_correction_bias");
        let gated = |expert: String, width: usize, names: [&str; 3]| {
            let expert = format!("{name}.{expert}");
            GatedFeedForward::load(
                loader,
                &expert,
                names,
                (hidden, width, false),
                spec.activation,
            )
        };
        Ok(Self {
            spec: spec.clone(),
            hidden,
            router: loader.matrix(&format!("{name}.gate"), spec.count, hidden, false)?,
            rank_bias: if spec.corrects_choice() {
                Some(loader.floats(&rank_bias, spec.count)?)
            } else {
                None
            },
            experts: (0..spec.count)
                .map(|expert| gated(format!("experts.{expert}"), spec.width, names))
                .collect::<std::result::Result<_, _>>()?,
            shared: match spec.shared_width {
                None => None,
                Some(width) => Some(gated(
                    spec.shared_name().to_owned(),
                    width,
                    ["gate_proj", "up_proj", "down_proj"],
                )?),
            },
            shared_gate: if spec.gates_shared {
                Some(loader.matrix(&format!("{name}.shared_expert_gate"), 1, hidden, false)?)
            } else {
                None
            },
        })
    }

    /// Multiplies all rows that chose an expert with its matrices together. A row's sum is accumulated in the order of expert
    /// numbers, and therefore does not depend on what else is in the step.
    fn forward(
        &self,
        compute: &mut C,
        rows: usize,
        buffers: &mut Buffers<C>,
        input: &C::Rows,
        output: &mut C::Rows,
    ) -> Result<()> {
        compute.linear(input, [&self.router], [&mut buffers.logits])?;
        compute.read(&buffers.logits, &mut buffers.on_host)?;
        let Buffers {
            gate,
            up,
            logits,
            picked,
            part,
            on_host,
            all_rows,
            router,
            low,
        } = buffers;
        router.route(&self.spec, self.rank_bias.as_deref(), on_host);
        compute.zeros(rows, self.hidden, output)?;
        for (expert, (rows, factors)) in self
            .experts
            .iter()
            .zip(router.rows.iter().zip(&router.factors))
        {
            if rows.is_empty() {
                continue;
            }
            compute.pick(input, rows, picked)?;
            let own = (&mut *gate, &mut *up, &mut *low);
            expert.forward(compute, own, &[], picked, part)?;
            compute.add_picked(part, rows, factors, output)?;
        }
        let Some(shared) = &self.shared else {
            return Ok(());
        };
        shared.forward(compute, (gate, up, low), &[], input, part)?;
        let Some(shared_gate) = &self.shared_gate else {
            return compute.add(1.0, part, output);
        };
        compute.linear(input, [shared_gate], [logits])?;
        compute.read(logits, on_host)?;
        for share in on_host.iter_mut() {
            *share = 1.0 / (1.0 + (-*share).exp());
        }
        all_rows.clear();
        all_rows.extend(0..rows);
        compute.add_picked(part, all_rows, on_host, output)
    }
}
