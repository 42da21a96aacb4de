# Parameters: as published with filebench 1.5 (filemicro_rwritedsync.f). The text is ours.
# Writes to random places of one file, each synced.
set $dir=/
set $count=65536
set $filesize=1g
set $iosize=2k
set $iters=1
set $nthreads=1

# The published one has no mode, and ends without a result.
set mode quit firstdone

define file name=bigfile,path=$dir,size=$filesize,prealloc,reuse

define process name=writer,instances=1 {
  thread name=writer,memsize=10m,instances=$nthreads {
    flowop write name=write,filename=bigfile,random,dsync,iosize=$iosize,iters=$iters
    flowop finishoncount name=finish,value=$count
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run
