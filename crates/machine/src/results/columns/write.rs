//! Records -> Parquet.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use parquet::basic::{
    Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel,
};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use wp_base::event::{BlockAction, DeviceWork, Event, Flags, Op, Record, ZoneOp, rwbs};

use super::*;

/// Level of Zstandard: more takes longer than it saves.
const LEVEL: i32 = 3;

/// The cells of a column in a row group. Rows that have none are added when the next one has.
#[derive(Default)]
struct Cells {
    texts: Vec<ByteArray>,
    numbers: Vec<i64>,
    truths: Vec<bool>,
    /// Of each row, or of each element of a list: is it there?
    defined: Vec<i16>,
    /// Of each element of lists: does it go on with the list before?
    repeated: Vec<i16>,
    /// Rows that are in it.
    rows: usize,
}

/// How far a column's value is defined: there it is.
const THERE: i16 = 1;

impl Cells {
    /// Fills up to `row` with nothing.
    fn pad(&mut self, row: usize, is_list: bool) {
        let empty = row - self.rows;
        self.defined.resize(self.defined.len() + empty, 0);
        if is_list {
            self.repeated.resize(self.defined.len(), 0);
        }
        self.rows = row;
    }

    /// Begins the cell of `row`.
    fn begin(&mut self, row: usize) {
        self.pad(row, false);
        self.defined.push(THERE);
        self.rows += 1;
    }

    fn list(&mut self, row: usize, values: impl Iterator<Item = i64>) {
        self.pad(row, true);
        for (n, value) in values.enumerate() {
            self.numbers.push(value);
            // A list that is there, and an element of it.
            self.defined.push(THERE);
            self.repeated.push(i16::from(n > 0));
            if n == 0 {
                self.rows += 1;
            }
        }
    }
}

/// A row group that is being filled.
struct Group {
    cells: Vec<Cells>,
    rows: usize,
    /// Texts that were written, each kept once.
    texts: BTreeMap<Box<str>, ByteArray>,
    /// The same of each column by address and length, for texts that outlive the group.
    lasting: Vec<Vec<(usize, usize, ByteArray)>>,
    /// Letters of operations with flags.
    rwbs: BTreeMap<(Op, u32), ByteArray>,
}

/// A row group, filled.
type Filled = (Vec<Cells>, usize);

/// The class of a block event's blocks. `None`: it is of no class.
pub type ClassOf<'a> = &'a mut dyn FnMut(&Record) -> Option<Rc<str>>;

fn no_cells() -> Vec<Cells> {
    COLUMNS.iter().map(|_| Cells::default()).collect()
}

/// Texts that are kept for the next rows: paths may be millions.
const TEXTS_MAX: usize = 1 << 14;

/// The same of each column by address, where each is compared.
const LASTING_MAX: usize = 64;

impl Group {
    fn new() -> Group {
        Group {
            cells: no_cells(),
            rows: 0,
            texts: BTreeMap::new(),
            lasting: COLUMNS.iter().map(|_| Vec::new()).collect(),
            rwbs: BTreeMap::new(),
        }
    }

    /// What it was filled with; it begins anew.
    fn take(&mut self) -> Filled {
        (std::mem::replace(&mut self.cells, no_cells()), std::mem::take(&mut self.rows))
    }

    /// A text that lives as long as the records: found again by its address, which takes a tenth of
    /// the time of its letters.
    fn lasting(&mut self, place: usize, text: &str) {
        let (at, len) = (text.as_ptr().addr(), text.len());
        let known = &mut self.lasting[place];
        let array = match known.iter().find(|(a, l, _)| (*a, *l) == (at, len)) {
            Some((.., array)) => array.clone(),
            None => {
                let array = ByteArray::from(text);
                if known.len() >= LASTING_MAX {
                    known.clear();
                }
                known.push((at, len, array.clone()));
                array
            }
        };
        self.cells[place].begin(self.rows);
        self.cells[place].texts.push(array);
    }

    fn text(&mut self, place: usize, text: &str) {
        let array = match self.texts.get(text) {
            Some(array) => array.clone(),
            None => {
                let array = ByteArray::from(text);
                if self.texts.len() >= TEXTS_MAX {
                    self.texts.clear();
                }
                self.texts.insert(text.into(), array.clone());
                array
            }
        };
        self.cells[place].begin(self.rows);
        self.cells[place].texts.push(array);
    }

    /// A number; of more than 2^63 it is the one with the same bits.
    fn number(&mut self, place: usize, number: u64) {
        self.cells[place].begin(self.rows);
        self.cells[place].numbers.push(number.cast_signed());
    }

    fn truth(&mut self, place: usize, truth: bool) {
        self.cells[place].begin(self.rows);
        self.cells[place].truths.push(truth);
    }

    fn request(&mut self, (op, flags): (Op, Flags), at: u64, sectors: u32) {
        self.lasting(OP, op_name(op));
        self.number(FLAGS, u64::from(flags.0));
        let letters = || ByteArray::from(rwbs(op, flags).as_str());
        let letters = self.rwbs.entry((op, flags.0)).or_insert_with(letters).clone();
        self.cells[RWBS].begin(self.rows);
        self.cells[RWBS].texts.push(letters);
        self.number(SECTOR, at);
        self.number(SECTORS, u64::from(sectors));
    }

    fn call(&mut self, name: &'static str, id: u64) {
        self.lasting(NAME, name);
        self.number(ID, id);
    }

    fn device(&mut self, w: &DeviceWork) {
        self.lasting(NAME, w.what.name());
        for (place, at) in [(READY_NS, w.ready), (FROM_NS, w.from), (TO_NS, w.to)] {
            self.number(place, at.0);
        }
        if let Some(die) = w.die {
            self.number(CHANNEL, u64::from(die.channel));
            self.number(DIE, u64::from(die.die));
        }
        for (place, n) in [(BUS_NS, w.bus.0), (CELLS_NS, w.cells.0), (BYTES, w.bytes)] {
            self.number(place, n);
        }
        self.truth(GC, w.gc);
        let row = self.rows;
        self.cells[COMMANDS].list(row, w.commands.iter().map(|id| id.cast_signed()));
        self.cells[HOLD_SECTOR].list(row, w.holds.iter().map(|(at, _)| at.0.cast_signed()));
        self.cells[HOLD_SECTORS].list(row, w.holds.iter().map(|(_, n)| i64::from(*n)));
    }

    fn push(&mut self, record: &Record, class: Option<Rc<str>>) {
        self.number(TIME, record.at.0);
        self.lasting(TASK, &record.task);
        if let Some(class) = class {
            self.text(CLASS, &class);
        }
        let kind = match &record.event {
            Event::Block { action, op, flags, at, sectors, extra } => {
                self.lasting(ACTION, letter(*action));
                self.request((*op, *flags), at.0, *sectors);
                self.number(VALUE, *extra);
                "block"
            }
            Event::Command { id, op, flags, at, sectors } => {
                self.number(ID, *id);
                self.request((*op, *flags), at.0, *sectors);
                "command"
            }
            Event::CommandEnd { id, ok } => {
                self.number(ID, *id);
                self.truth(OK, *ok);
                "command_end"
            }
            Event::Device(work) => {
                self.device(work);
                "device"
            }
            of_host => self.host(of_host),
        };
        self.lasting(EVENT, kind);
        self.rows += 1;
    }

    /// An event of tasks, calls and file systems; its kind.
    fn host(&mut self, event: &Event) -> &'static str {
        match event {
            Event::Jbd2 { what, tid, value } => {
                self.call(what, u64::from(*tid));
                self.number(VALUE, *value);
                "jbd2"
            }
            Event::Cpu { what, span } => {
                self.lasting(NAME, what);
                self.number(DURATION, span.0);
                "cpu"
            }
            Event::Wakeup { task, timer, on } => {
                self.text(TARGET, task);
                self.truth(TIMER, *timer);
                self.lasting(NAME, on);
                "wakeup"
            }
            Event::Fs { work, step, id, why } => {
                self.call(work, *id);
                self.lasting(STEP, step);
                self.lasting(WHY, why);
                "fs"
            }
            Event::SwitchIn { core } => {
                self.number(CORE, u64::from(*core));
                "switch_in"
            }
            Event::SwitchOut { ready } => {
                self.truth(READY, *ready);
                "switch_out"
            }
            Event::SyscallEnter { name, id, target } => {
                self.call(name, *id);
                self.text(TARGET, target);
                "enter"
            }
            Event::SyscallExit { name, id, value, ok } => {
                self.call(name, *id);
                self.number(VALUE, *value);
                self.truth(OK, *ok);
                "exit"
            }
            Event::Mark { text } => {
                self.text(NAME, text);
                "mark"
            }
            Event::Block { .. }
            | Event::Command { .. }
            | Event::CommandEnd { .. }
            | Event::Device(_) => unreachable!("`push` takes these"),
        }
    }
}

/// blktrace's letter of an action.
fn letter(action: BlockAction) -> &'static str {
    const LETTERS: &str = "QAXGMFPUIDRC";
    let at = LETTERS.find(action.letter()).unwrap_or(0);
    &LETTERS[at..=at]
}

/// The name of an operation.
pub(super) fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::Zone(zone) => ZoneOp::name(zone),
    }
}

fn leaf(name: &str, kind: Kind, repetition: Repetition) -> Result<Arc<Type>, ParquetError> {
    let physical = match kind {
        Kind::Text => Physical::BYTE_ARRAY,
        Kind::Growing | Kind::Number | Kind::Numbers => Physical::INT64,
        Kind::Truth => Physical::BOOLEAN,
    };
    let made = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    let made = match kind {
        Kind::Text => made
            .with_converted_type(ConvertedType::UTF8)
            .with_logical_type(Some(LogicalType::String)),
        _ => made,
    };
    Ok(Arc::new(made.build()?))
}

/// Do all rows have the column?
pub(super) fn is_of_all(place: usize) -> bool {
    place <= EVENT
}

/// The schema of the file. Lists are repeated fields, which every reader takes for lists.
fn schema() -> Result<Arc<Type>, ParquetError> {
    let field = |(place, column): (usize, &Column)| {
        let repetition = match column.kind {
            _ if is_of_all(place) => Repetition::REQUIRED,
            Kind::Numbers => Repetition::REPEATED,
            _ => Repetition::OPTIONAL,
        };
        leaf(column.name, column.kind, repetition)
    };
    let fields: Result<Vec<_>, _> = COLUMNS.iter().enumerate().map(field).collect();
    Ok(Arc::new(Type::group_type_builder("events").with_fields(fields?).build()?))
}

fn properties() -> Result<WriterProperties, ParquetError> {
    let mut made = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(format!("writepath {}", crate::results::ENGINE))
        .set_max_row_group_size(GROUP);
    for column in COLUMNS.iter().filter(|c| c.kind == Kind::Growing) {
        let path = ColumnPath::new(vec![column.name.to_owned()]);
        made = made
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(made.build())
}

/// Writes records as a table. Errors: the writer's.
///
/// One thread makes columns of records, another encodes and compresses them.
pub fn write(records: &[Record], class: ClassOf<'_>, to: impl io::Write + Send) -> io::Result<()> {
    let schema = schema().map_err(io::Error::other)?;
    let properties = Arc::new(properties().map_err(io::Error::other)?);
    let mut file = SerializedFileWriter::new(to, schema, properties).map_err(io::Error::other)?;
    std::thread::scope(|scope| {
        // One waits while another is encoded.
        let (send, take) = std::sync::mpsc::sync_channel::<Filled>(1);
        let encode = move || {
            for filled in take {
                write_group(&mut file, filled)?;
            }
            file.close().map(drop)
        };
        let encoder = std::thread::Builder::new().name("events".to_owned());
        let encoder = encoder.spawn_scoped(scope, encode)?;
        let mut group = Group::new();
        for part in records.chunks(GROUP) {
            part.iter().for_each(|record| group.push(record, class(record)));
            if send.send(group.take()).is_err() {
                break;
            }
        }
        drop(send);
        match encoder.join() {
            Ok(done) => done.map_err(io::Error::other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn write_group<W: io::Write + Send>(
    file: &mut SerializedFileWriter<W>,
    (cells, rows): Filled,
) -> Result<(), ParquetError> {
    let mut row_group = file.next_row_group()?;
    for (place, mut cells) in cells.into_iter().enumerate() {
        let is_list = COLUMNS[place].kind == Kind::Numbers;
        cells.pad(rows, is_list);
        let Some(mut column) = row_group.next_column()? else { break };
        let defined = (!is_of_all(place)).then_some(&*cells.defined);
        let repeated = is_list.then_some(&*cells.repeated);
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(to) => {
                to.write_batch(&cells.texts, defined, repeated)?;
            }
            ColumnWriter::Int64ColumnWriter(to) => {
                to.write_batch(&cells.numbers, defined, repeated)?;
            }
            ColumnWriter::BoolColumnWriter(to) => {
                to.write_batch(&cells.truths, defined, repeated)?;
            }
            _ => return Err(ParquetError::General(format!("column {place} has another type"))),
        }
        column.close()?;
    }
    row_group.close()?;
    Ok(())
}
