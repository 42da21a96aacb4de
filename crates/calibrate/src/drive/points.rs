//! Measured points: the file, its columns, and which half a point is in.

/// A measured point.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Which drive, through which interface: `zn540` (SPDK) or `zn540-uring`.
    pub device: String,
    /// The experiment.
    pub experiment: String,
    /// The command.
    pub op: String,
    /// Bytes of a command; 0 for those without data.
    pub size: u32,
    /// In flight in each zone.
    pub depth: u32,
    /// Zones used at once.
    pub zones: u32,
    /// Part of the zone that was written before.
    pub fraction: Option<f64>,
    /// Mean latency in microseconds.
    pub mean_us: Option<f64>,
    /// Commands per second.
    pub iops: Option<f64>,
    /// File of the data set that it is from.
    pub source: String,
}

/// What limits a drive at a point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Regime {
    /// One command in flight.
    Alone,
    /// Several, and not as fast as it gets.
    Knee,
    /// As fast as it gets, or nearly.
    Plateau,
    /// Commands for zones, and what they leave to the next write.
    Management,
    /// Load beside other load.
    Interference,
}

impl Regime {
    /// All, in order.
    pub const ALL: [Regime; 5] =
        [Regime::Alone, Regime::Knee, Regime::Plateau, Regime::Management, Regime::Interference];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Regime::Alone => "QD1",
            Regime::Knee => "knee",
            Regime::Plateau => "plateau",
            Regime::Management => "management",
            Regime::Interference => "interference",
        }
    }
}

impl Point {
    /// Is it in the half that the model was fitted to? By its coordinates: runs of one point and
    /// its two metrics are in one half. 4 KiB, one zone, depth 1 always is: everything hangs on it.
    pub fn is_fitted(&self) -> bool {
        if self.size == 4096 && self.depth == 1 && self.zones == 1 && self.device == "zn540" {
            return true;
        }
        let fraction = self.fraction.map_or(0, f64::to_bits);
        let text = format!(
            "{} {} {} {} {} {fraction}",
            self.experiment, self.op, self.size, self.depth, self.zones
        );
        // FNV-1a, a bit from its middle.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3)
        });
        hash >> 31 & 1 == 0
    }

    /// The kind of command that its error is averaged with.
    pub fn kind(&self) -> &str {
        match self.experiment.as_str() {
            "reset_after_finish" => "reset after finish",
            _ => &self.op,
        }
    }

    /// Commands in flight.
    pub fn in_flight(&self) -> u32 {
        self.depth * self.zones
    }
}

/// The columns, as the first line has them.
const COLUMNS: &str =
    "device,experiment,op,size_bytes,queue_depth,zones,fraction_written,mean_us,iops,source_file";

/// Reads points. Errors: the line that is none, and why.
pub fn parse(text: &str) -> Result<Vec<Point>, String> {
    let mut lines = (1..).zip(text.lines());
    match lines.next() {
        Some((_, COLUMNS)) => {}
        _ => return Err(format!("line 1: the columns must be {COLUMNS}")),
    }
    lines.map(|(n, line)| point(line).map_err(|e| format!("line {n}: {e}"))).collect()
}

fn point(line: &str) -> Result<Point, String> {
    let fields: Vec<&str> = line.split(',').collect();
    let [device, experiment, op, size, depth, zones, fraction, mean, iops, source] = fields[..]
    else {
        return Err(format!("{} fields instead of 10", fields.len()));
    };
    let small = |name: &str, text: &str, missing: u32| match text {
        "" => Ok(missing),
        _ => text.parse::<u32>().map_err(|_| format!("{name} is {text:?}, which is not a number")),
    };
    let real = |name: &str, text: &str| match text {
        "" => Ok(None),
        _ => match text.parse::<f64>() {
            Ok(value) if value >= 0.0 && value.is_finite() => Ok(Some(value)),
            _ => Err(format!("{name} is {text:?}, which is not a number")),
        },
    };
    Ok(Point {
        device: device.to_owned(),
        experiment: experiment.to_owned(),
        op: op.to_owned(),
        size: small("size_bytes", size, 0)?,
        depth: small("queue_depth", depth, 1)?,
        zones: small("zones", zones, 1)?,
        fraction: real("fraction_written", fraction)?,
        mean_us: real("mean_us", mean)?,
        iops: real("iops", iops)?,
        source: source.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_what_is_none_is_told() {
        let text = format!("{COLUMNS}\nzn540,append,append,4096,2,1,,16.9,111654,x.json\n");
        let points = parse(&text).expect("points");
        assert_eq!((points[0].in_flight(), points[0].iops), (2, Some(111_654.0)));
        let error = parse(&text.replace("16.9", "fast")).expect_err("no number");
        assert_eq!(error, "line 2: mean_us is \"fast\", which is not a number");
        assert!(parse("a,b\n").is_err() && parse("").is_err());
    }
}
