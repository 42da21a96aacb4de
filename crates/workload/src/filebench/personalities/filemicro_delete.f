# Parameters: as published with filebench 1.5 (filemicro_delete.f). The text is ours.
# Deletes files until `count` flowops are done.
set $dir=/
set $count=1000
set $filesize=16k
set $nfiles=5000
set $meandirwidth=100
set $nthreads=16

set mode quit firstdone

define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100,paralloc

define process name=deleter,instances=1 {
  thread name=deleter,memsize=10m,instances=$nthreads {
    flowop deletefile name=delete,filesetname=bigfileset
    flowop opslimit name=limit
    flowop finishoncount name=finish,value=$count
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run
