"""`python -m tests.dropin`: the same stories with python, torchrun and us, side by side."""
import argparse, sys, time, os, json
from multiprocessing import get_context
from tests.dropin.stories import STORIES
from tests.dropin.play import play
from tests.dropin.compare import differences

def one(story):
    began=time.monotonic()
    seen={}
    for l in story.launchers:
        t=time.monotonic(); 
        seen[l]=play(story,l); seen[l]['~seconds']=round(time.monotonic()-t,1)
    return story, seen

def main():
    p=argparse.ArgumentParser(); p.add_argument('--only',default=''); p.add_argument('--list',action='store_true'); p.add_argument('--raw')
    a=p.parse_args()
    chosen=[s for s in STORIES if any(o in s.name for o in a.only.split(';'))]
    print(len(chosen),'stories',sum(len(s.launchers)*s.nodes for s in chosen),'launches')
    if a.list:
        for s in chosen: print(s.name)
        return
    import torch.distributed.run
    import torch.distributed.elastic.agent.server.local_elastic_agent, torch.distributed.elastic.rendezvous.registry
    all={}
    with get_context('fork').Pool(3) as pool:
        for s,seen in pool.imap_unordered(one,chosen):
            all[s.name]=seen
            print(s.name,{l:f['~seconds'] for l,f in seen.items()},flush=True)
            for d in differences(s.name,seen): print(d.told(),flush=True)
    json.dump(all,open(a.raw or '/tmp/raw.json','w'),indent=1)
main()
