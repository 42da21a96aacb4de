# Parameters: as published with filebench 1.5 (filemicro_rwritefsync.f). The text is ours.
# Writes to random places of one file, then an fsync. The published one has an attribute `cached`
# that filebench 1.5 does not know.
set $dir=/
set $count=1
set $filesize=1g
set $iosize=8k
set $iters=16384
set $nthreads=1

# The published one has no mode, and ends without a result.
set mode quit firstdone

define file name=bigfile,path=$dir,size=$filesize,prealloc

define process name=writer,instances=1 {
  thread name=writer,memsize=10m,instances=$nthreads {
    flowop write name=write,filename=bigfile,random,iosize=$iosize,iters=$iters
    flowop fsync name=sync
    flowop finishoncount name=finish,value=$count
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run
